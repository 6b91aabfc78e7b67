"""Programs with options and without: what has to hold for any combination of settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

import popc
import popc_runtime
from popc_runtime.errors import PopcError
from popc_runtime.format import Array
from tests.options.settings import SETTINGS, Setting, merged
from tests.options.tiny_networks import NETWORKS

__all__ = [
    "BATCH",
    "SUBJECTS",
    "Subject",
    "check",
    "draw_case",
    "is_wrong",
    "network",
    "shrunk",
    "training",
]

BATCH: Final = 8
_RUNS: Final = 2
# Less is compared with this: gradients of the biases of keys are what larger ones are rounded by.
_SMALL: Final = 1e-2


class Subject(NamedTuple):
    """A network, and the optimizer that trains it; "" for inference."""

    network: str
    optimizer: str


_TRAINED: Final = (
    Subject("mlp", "adam"),
    Subject("cnn", "momentum"),
    Subject("transformer", "momentum"),
    Subject("residual", "adam"),
    Subject("recurrent", "momentum"),
)
SUBJECTS: Final = (*_TRAINED, *(Subject(name.network, "") for name in _TRAINED))


# The work limit is for speed: the search for an order with a lower peak is tested elsewhere.
_ALWAYS: Final = {"verify_ir": True, "compression": "fast", "scheduler_work_limit": 100}


@cache
def network(name: str) -> onnx.ModelProto:
    """The model of a tiny network."""
    return NETWORKS[name]()


# With its usual epsilon Adam divides rounding errors by their own size.
_OPTIMIZERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "adam": {"type": "adam", "learning_rate": 1e-3, "eps": 1e-2},
    "momentum": {"type": "sgd", "learning_rate": 0.01, "momentum": 0.9},
}
_LOSS: Final = {"type": "cross_entropy", "input": "logits", "label": "label"}


def training(optimizer: str) -> dict[str, Any] | None:
    """What a training file would say; ``None`` without an optimizer."""
    return {"loss": _LOSS, "optimizer": dict(_OPTIMIZERS[optimizer])} if optimizer else None


def _run(subject: Subject, settings: Mapping[str, Any], *, costs: bool) -> dict[str, Array]:
    """Results of two runs, and the variables afterwards; with ``costs``, also asks for these."""
    archive = popc.compile(
        network(subject.network),
        options={**_ALWAYS, "cost_report": costs, **settings},
        dims={"batch": BATCH},
        train=training(subject.optimizer),
    )
    with TemporaryDirectory() as folder:
        executable = popc_runtime.load(archive.save(Path(folder) / "program.popx"))
    return _results(executable)


def _results(executable: popc_runtime.Executable) -> dict[str, Array]:
    found: dict[str, Array] = {}
    source = np.random.default_rng(0)
    for step in range(_RUNS):
        feeds = {
            spec.name: source.standard_normal(spec.shape, np.float32)
            if spec.dtype.is_float
            else source.integers(0, 10, spec.shape).astype(spec.dtype.storage)
            for spec in executable.inputs
        }
        for name, value in executable.run(feeds).items():
            found[f"{step} {name}"] = np.array(value)
    found.update(executable.state.read())
    return found


def _key(options: Mapping[str, Any]) -> str:
    return repr(sorted(options.items()))


# What a changed order of arithmetic explains in float16: ten values in a row, each rounded by half
# the distance to the next one.
_IN_HALF: Final = 10 * 2.0**-11

# What adding up parts of a gradient in another order explains.
_IN_PARTS: Final = 1e-5

_BASES: dict[str, dict[str, Array]] = {}


def check(subject: Subject, settings: Sequence[Setting]) -> str:
    """What is wrong with a combination; "" if nothing is, "refused: ..." if it is an error.

    Errors of popc have to name one of the options.
    """
    wanted = merged(settings, trains=bool(subject.optimizer))
    assert wanted is not None, "two settings give an option different values"
    options, base = wanted
    name = f"{subject} {_key(base)}"
    try:
        if name not in _BASES:
            _BASES[name] = _run(subject, base, costs=False)
        found = _run(subject, options, costs=True)
    except PopcError as error:
        told = _told(error)
        named = any(option in told for option in options)
        return f"refused: {told}" if named else f"an error names no option: {told}"
    return _compared(_BASES[name], found, _tolerance(subject, settings, options))


def _tolerance(subject: Subject, settings: Sequence[Setting], options: Mapping[str, Any]) -> float:
    """The relative difference that the options explain.

    Each stage of a pipeline adds up its own part of the gradient of a weight that is tied.
    Where an op is on another chip, or in another phase, than what it would be fused with, float16
    values are rounded between the two; stochastic rounding rounds each of them another way.
    """
    tolerance = max((setting.tolerance for setting in settings), default=0.0)
    if subject.network == "tied" and subject.optimizer and options.get("enable_pipelining"):
        tolerance = max(tolerance, _IN_PARTS)
    narrow = options.get("precision") in ("float16", "mixed")
    rounds = "virtual_graph_mode" in options or options.get("enable_stochastic_rounding")
    return max(tolerance, _IN_HALF) if narrow and (tolerance or rounds) else tolerance


def _told(error: PopcError) -> str:
    """What users are told that names options."""
    return "; ".join((error.subject, error.message, *error.details))


def _compared(plain: Mapping[str, Array], other: Mapping[str, Array], tolerance: float) -> str:
    problems = []
    for name in sorted(plain):
        if name not in other:
            problems.append(f"{name} is missing")
            continue
        left, right = np.asarray(plain[name], np.float64), np.asarray(other[name], np.float64)
        if left.shape != right.shape:
            problems.append(f"{name} is {right.shape}, not {left.shape}")
        elif not np.array_equal(left, right):
            gap = float(np.abs(left - right).max()) / max(float(np.abs(left).max()), _SMALL)
            if not gap <= tolerance:
                problems.append(f"{name} differs by {gap:.1e}")
    return "; ".join(problems)


def draw_case(seed: int, number: int) -> tuple[Subject, list[Setting]]:
    """A subject and three to six settings that give no option two values.

    Every number has its own, whichever others are drawn.
    """
    source = random.Random(f"{seed} {number}")
    subject = source.choice(SUBJECTS)
    other = "infer" if subject.optimizer else "train"
    usable = [setting for setting in SETTINGS if setting.only != other]
    size = source.randint(3, 6)
    chosen: list[Setting] = []
    while len(chosen) < size:
        more = [*chosen, source.choice(usable)]
        if len(set(map(id, more))) == len(more) and merged(more, trains=bool(subject.optimizer)):
            chosen = more
    return subject, chosen


def shrunk(subject: Subject, settings: Sequence[Setting]) -> list[Setting]:
    """As few of ``settings``, which come out wrong, as still do."""
    least = list(settings)
    for setting in settings:
        fewer = [item for item in least if item is not setting]
        if is_wrong(subject, fewer):
            least = fewer
    return least


def is_wrong(subject: Subject, settings: Sequence[Setting]) -> str:
    """What is wrong with a combination, bugs included; "" if nothing is, or if it is refused."""
    try:
        found = check(subject, settings)
    except Exception as error:  # noqa: BLE001 - bugs are what is looked for
        return f"{type(error).__name__}: {error}"
    return "" if found.startswith("refused: ") else found
