"""Programs that nobody compiled, loaded and run where they can do no harm."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from popc_runtime import Executable
from popc_runtime.errors import PopcError
from popc_runtime.format import Array, TensorSpec
from tests.native.children import Tell, in_a_child

__all__ = ["Trial", "complaints"]

_ROOM: Final = 2 << 30  # bytes that a process may ask for beyond what it has
_MOST: Final = 12  # complaints
_LARGEST: Final = 1 << 26  # bytes of inputs
_ALARM: Final = "signal 14"


@dataclass(frozen=True)
class Trial:
    """Something to load.

    Attributes:
        label: What is wrong with it.
        load: Makes a program of it, or raises what it likes to.
        is_right: It is as it should be: has to run.
        may_be_long: It may say how often something is repeated, and take as long as it says.
    """

    label: str
    load: Callable[[], Executable]
    is_right: bool = False
    may_be_long: bool = False


def complaints(trials: Sequence[Trial]) -> Iterator[str]:
    """What is wrong with how ``trials`` end: they run, or say in an error of popc why they do not.

    A trial that ends its process does not end the others.
    """
    begin = 0
    for _ in range(_MOST):
        complaint, last = in_a_child(partial(_try_all, trials, begin))
        if complaint and not (trials[last].may_be_long and complaint.startswith(_ALARM)):
            yield complaint
        if not complaint:
            return
        begin = last + 1


def _try_all(trials: Sequence[Trial], first: int, tell: Tell) -> str:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM,) * 2)
    for number, trial in enumerate(trials[first:], first):
        tell(number, trial.label)
        try:
            _run(trial.load())
        except PopcError as error:
            problem = f"is refused: {error}" if trial.is_right else _unclear(error)
            if problem:
                return problem
    return ""


def _unclear(error: PopcError) -> str:
    """What is wrong with what ``error`` says."""
    said = str(error)
    if not error.message or "Traceback" in said or " object at 0x" in said:
        return f"an unclear error: {said!r}"
    return ""


def _run(executable: Executable) -> None:
    if sum(spec.nbytes for spec in executable.inputs) > _LARGEST:
        return
    feeds = {spec.name: _sample(spec) for spec in executable.inputs}
    with np.errstate(all="ignore"):
        executable.run(feeds)
        executable.run_buffers(feeds)
        if executable.manifest.variables:
            executable.state.read()


def _sample(spec: TensorSpec) -> Array:
    return np.ones(spec.shape, spec.dtype.storage)
