"""Serve an archive with Ray Serve, which adds and removes replicas as the load asks.

    pip install 'ray[serve]' popc-runtime
    serve run samples.ray_serve:app archive=/models/net.popx
    curl localhost:8000 -d '{"x": [1, 2, 3]}'

A request is a JSON object with a sample for each input, its answer one with a result for each
output.  Requests that come together share a run, which needs an archive that was compiled for
several sizes of batches (--dim batch=1,8,32 --split batch).  For the Open Inference Protocol, use
`popc serve`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import popc_runtime
from popc_runtime.errors import InputMismatchError

Sample = dict[str, Any]
Answer = tuple[dict[str, Any], int]  # the content, and the status of HTTP


@serve.deployment(
    max_ongoing_requests=64,
    max_queued_requests=256,  # beyond which the answer is 503
    autoscaling_config={"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 32},
    ray_actor_options={"num_cpus": 1},
)
class Model:
    """A replica."""

    def __init__(self, archive: str, threads: int = 1) -> None:
        """Load the archive, and find everything in place for the first request."""
        self._model = popc_runtime.load(archive, threads=threads)
        self._model.warmup()

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer a request."""
        try:
            sample = await request.json()
        except ValueError as error:
            return JSONResponse({"error": f"not JSON: {error}"}, 400)
        if not isinstance(sample, dict):
            return JSONResponse({"error": "not a JSON object"}, 400)
        content, status = await self._answer(sample)
        try:
            return JSONResponse(content, status)
        except ValueError:
            return JSONResponse({"error": "JSON has no form for NaN and infinity"}, 500)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def _answer(self, samples: list[Sample]) -> list[Answer]:
        """The answers to samples that came together; computed while others are received."""
        return await asyncio.to_thread(self._answers, samples)

    def _answers(self, samples: list[Sample]) -> list[Answer]:
        """Answers to all: those that fit share a run, and wrong ones are told so."""
        found: list[Answer] = [({}, 200)] * len(samples)
        ready: dict[int, Sample] = {}
        for place, sample in enumerate(samples):
            try:
                ready[place] = self._arrays(sample)
            except popc_runtime.PopcError as error:
                found[place] = {"error": str(error)}, 400
        for place, answer in zip(ready, self._results([*ready.values()]), strict=True):
            found[place] = answer
        return found

    def _results(self, samples: list[Sample]) -> list[Answer]:
        """Results of a run; if the samples do not fit together, of one for each."""
        if not samples:
            return []
        try:
            rows = {name: np.stack([each[name] for each in samples]) for name in samples[0]}
            results = self._model.run(rows)
        except (popc_runtime.PopcError, ValueError) as error:
            if len(samples) == 1:
                status = 400 if isinstance(error, InputMismatchError) else 500
                return [({"error": str(error)}, status)]
            return [answer for each in samples for answer in self._results([each])]
        return [
            ({name: array[row].tolist() for name, array in results.items()}, 200)
            for row in range(len(samples))
        ]

    def _arrays(self, sample: Sample) -> Sample:
        """The inputs of a sample as arrays of the model's types, by which no number changes."""
        specs = {spec.name: spec for spec in self._model.inputs}
        if sample.keys() != specs.keys():
            raise InputMismatchError(f"expected {sorted(specs)}, got {sorted(sample)}")
        found = {}
        for name, spec in specs.items():
            dtype = spec.dtype.storage
            try:
                given = np.asarray(sample[name])
                found[name] = given.astype(dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise InputMismatchError(f"input {name!r}: {error}") from None
            if dtype.kind in "biu" and not np.array_equal(found[name], given):
                raise InputMismatchError(f"input {name!r} has numbers that are no {spec.dtype}")
        return found


def app(arguments: dict[str, str]) -> Any:
    """The application, for ``serve run``."""
    unknown = sorted(arguments.keys() - {"archive", "threads"})
    if unknown or "archive" not in arguments:
        raise ValueError(f"give archive=PATH, and threads=N if you like; not {unknown}")
    return Model.bind(arguments["archive"], int(arguments.get("threads", 1)))  # type: ignore[attr-defined]
