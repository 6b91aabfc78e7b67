"""Networks to train with and without streaming memory, and how much of it they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

import popc
import popc_runtime
from popc.compiler import Planned
from popc.ir import Graph, Op
from popc.ops.streaming import constants_off_chip
from popc_runtime.format import Array
from samples.networks import digits_cnn, digits_mlp, sorting_transformer
from tests.support.compiling import CHECKED
from tests.support.remembered import remembered

__all__ = [
    "EVERYTHING",
    "MODELS",
    "OFF",
    "SHARDED",
    "Run",
    "assert_same",
    "on_chip_bytes",
    "plain_run",
    "run",
    "training",
    "transfers",
]

OFF: Final = {"storage": "off_chip"}
SHARDED: Final = {
    "replicated_tensor_sharding": True,
    "min_elements_for_replicated_tensor_sharding": 1,
}
EVERYTHING: Final[dict[str, Any]] = {
    f"{kind}_tensor_location": OFF
    for kind in ("weight", "optimizer_state", "activation", "accumulator")
}
MODELS: Final[dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, tuple[int, ...]]]]] = {
    "mlp": (partial(digits_mlp, hidden=64), {"image": (8, 64)}),
    "cnn": (digits_cnn, {"image": (4, 1, 8, 8)}),
    "transformer": (partial(sorting_transformer, size=16, layers=1), {"tokens": (4, 10)}),
}


class Run(NamedTuple):
    """Outputs of every step, variables afterwards, and bytes by purpose."""

    outputs: list[dict[str, Array]]
    variables: dict[str, Array]
    memory: Mapping[str, int]

    @property
    def on_chip(self) -> int:
        """Bytes on the chip, but for constants."""
        return self.memory["arena_bytes"] + self.memory["state_bytes"]


def training(**optimizer: Any) -> dict[str, Any]:
    """Training settings; gradient descent unless told otherwise."""
    return {
        "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
        "optimizer": {"type": "sgd", "learning_rate": 0.05, **optimizer},
    }


def run(
    name: str, folder: Path, train: Mapping[str, Any] | None = None, steps: int = 2, **options: Any
) -> Run:
    """Compile a model with all checks, and run it on samples that are always the same."""
    make, shapes = MODELS[name]
    archive = popc.compile(make(), shapes=shapes, train=train, options={**CHECKED, **options})
    program = popc_runtime.load(archive.save(folder / "m.popx", force=True))
    generator = np.random.default_rng(1)
    outputs = [
        program.run({spec.name: _sample(generator, spec) for spec in program.inputs})
        for _ in range(steps)
    ]
    if train is not None:
        program.state.check_equal_across_replicas()
    return Run(outputs, program.state.read(), archive.manifest.memory)


plain_run: Final = remembered(run)  # of programs that others are compared with


def _sample(generator: np.random.Generator, spec: Any) -> Array:
    if spec.dtype.storage.kind == "i":
        return np.asarray(generator.integers(0, 10, spec.shape), spec.dtype.storage)
    return np.asarray(generator.standard_normal(spec.shape), spec.dtype.storage)


def assert_same(found: Run, expected: Run, tolerance: float = 0) -> None:
    """Outputs and variables are equal bit for bit, or nearly."""
    assert found.variables.keys() == expected.variables.keys()
    pairs = [*zip(found.outputs, expected.outputs, strict=True)]
    for ours, theirs in [*pairs, (found.variables, expected.variables)]:
        for key, value in theirs.items():
            np.testing.assert_allclose(ours[key], value, tolerance, tolerance, err_msg=key)


def on_chip_bytes(planned: Planned) -> int:
    """Arena, state and constants that are on the chip."""
    plan, away = planned.plan, constants_off_chip(planned.graph)
    held = plan.arena_bytes + plan.state_bytes + plan.constant_bytes
    return held - sum(constant.type.nbytes for constant in away)


def transfers(graph: Graph, op_type: str = "") -> list[Op]:
    """Loads and stores of a graph and of those nested in it."""
    wanted = (op_type,) if op_type else ("RemoteLoad", "RemoteStore")
    return [op for part in graph.walk() for op in part.ops if op.op_type in wanted]
