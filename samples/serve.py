"""Serve requests with an archive: all it needs is popc-runtime.

    python samples/serve.py model.popx < requests.txt

Every line of the standard input is a request: the path of an .npz file with the model's inputs by
name.  Every line of the standard output is its answer as JSON: for each output its shape and its
largest value with the index of that, or an error.  The archive is loaded once; requests wait in a
bounded queue while the program runs, so a slow model slows its clients down instead of filling the
memory.  The loop ends with the input.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from queue import Queue
from typing import Any, TextIO

import numpy as np

import popc_runtime

WAITING = 8  # requests that are read ahead


class Server:
    """One executable with its streams connected, and the loop that steps through requests."""

    def __init__(self, executable: popc_runtime.Executable, answers: TextIO) -> None:
        self._executable = executable
        self._answers = answers
        self._inputs: dict[str, Queue[Any]] = {spec.name: Queue() for spec in executable.inputs}
        self._results: dict[str, list[Any]] = {spec.name: [] for spec in executable.outputs}

    def serve(self, requests: Iterable[str]) -> int:
        """Answer every request in order; how many."""
        waiting: Queue[str | None] = Queue(WAITING)
        reader = threading.Thread(target=_read, args=(requests, waiting), daemon=True)
        reader.start()
        count = 0
        with self._executable.session() as session:
            for name, feed in self._inputs.items():
                session.connect(name, feed, timeout=0)
            for name, results in self._results.items():
                session.connect(name, results)
            while (path := waiting.get()) is not None:
                self._answer(path, session)
                count += 1
        return count

    def _answer(self, path: str, session: popc_runtime.Session) -> None:
        answer: dict[str, Any]
        try:
            arrays = self._checked(path)
            for name, feed in self._inputs.items():
                feed.put(arrays[name])
            session.step()
            answer = {name: _summary(results.pop()) for name, results in self._results.items()}
        except (popc_runtime.PopcError, OSError, ValueError) as error:
            self._forget()
            answer = {"error": str(error)}
        print(json.dumps({"request": path, **answer}), file=self._answers, flush=True)

    def _forget(self) -> None:
        """Leave nothing of a failed request for the next one."""
        for feed in self._inputs.values():
            feed.queue.clear()
        for results in self._results.values():
            results.clear()

    def _checked(self, path: str) -> dict[str, Any]:
        """The arrays of a request, so that a bad one is refused before it enters a stream."""
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        for spec in self._executable.inputs:
            array = arrays.get(spec.name)
            if array is None:
                raise ValueError(f"{path} has no array {spec.name!r}")
            if array.shape != spec.shape or array.dtype != spec.dtype.storage:
                found = f"{array.dtype}{list(array.shape)}"
                raise ValueError(f"expected {spec}, got {found}")
        return arrays


def _read(lines: Iterable[str], waiting: Queue[str | None]) -> None:
    for line in lines:
        if path := line.strip():
            waiting.put(path)
    waiting.put(None)


def _summary(result: Any) -> dict[str, Any]:
    best = int(result.argmax())
    return {"shape": list(result.shape), "argmax": best, "max": result.flat[best].item()}


def main(arguments: list[str]) -> int:
    """Load the archive and serve until the input ends."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        executable = popc_runtime.load(arguments[0])
    except popc_runtime.PopcError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    executable.warmup()  # the first request is as fast as the others
    count = Server(executable, sys.stdout).serve(sys.stdin)
    print(f"served {count} requests", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
