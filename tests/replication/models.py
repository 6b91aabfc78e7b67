"""Models that several replicas run, in the text form of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.compiling import CHECKED

__all__ = ["compiled", "fed", "graphcore", "normalised", "random_samples", "splits"]

_HEADER = '<ir_version: 10, opset_import: ["": 17, "ai.graphcore": 1]>\n'


def graphcore(body: str) -> onnx.ModelProto:
    """A model that may use ai.graphcore; shapes of outputs are left to the compiler."""
    model = parser.parse_model(_HEADER + body)
    for declared in model.graph.output:
        declared.type.tensor_type.ClearField("shape")
    return model


def normalised(dropout: float = 0.0) -> onnx.ModelProto:
    """x [8, 3, 4] is scaled by w [3, 4] and normalised by statistics of the batch -> loss."""
    constants = "float[3] scale = {1.0, 0.5, 2.0}, float[3] bias = {0.0, 1.0, -1.0}"
    extra = f", float ratio = {{{dropout}}}, bool yes = {{1}}" if dropout else ""
    nodes = [
        "p = Mul (x, w)",
        "d, mask = Dropout (p, ratio, yes)" if dropout else "d = Identity (p)",
        "n, mean2, var2 = BatchNormalization <training_mode = 1> (d, scale, bias, mean, var)",
        "s = Mul (n, v)",
        "t = Mul (s, s)",
        "e = Tanh (s)",
        "f = Add (t, e)",
        "loss = ReduceMean <keepdims = 0> (f)",
    ]
    return graphcore(
        "g (float[8,3,4] x) => (float loss, float n) "
        f"<{constants}, float[3] mean = {{0.0, 0.0, 0.0}}, float[3] var = {{1.0, 1.0, 1.0}}, "
        "float[3,4] w = {1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 1.1, 1.2}, "
        f"float[4] v = {{0.3, -0.2, 0.5, 0.1}}{extra}> {{ {' '.join(nodes)} }}"
    )


def compiled(
    model: onnx.ModelProto,
    folder: Path,
    train: Mapping[str, Any] | None = None,
    *,
    threads: int | None = None,
    seed: int = 0,
    engine: str = "auto",
    **options: Any,
) -> popc_runtime.Executable:
    """``model``, compiled with checks of every stage, and loaded."""
    archive = popc.compile(model, train=train, options={**CHECKED, **options})
    path = archive.save(folder / "m.popx", force=True)
    return popc_runtime.load(path, threads=threads, seed=seed, engine=engine)


def splits(
    program: popc_runtime.Executable, samples: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """The inputs of step after step; dimension 0 of ``samples`` counts micro-batches."""
    counts = [max(program.stream(name).samples_per_step, 1) for name in samples]
    steps = len(next(iter(samples.values()))) // max(counts)
    shapes = {spec.name: spec.shape for spec in program.inputs}
    return [
        {
            name: samples[name][step * count : (step + 1) * count].reshape(shapes[name])
            for name, count in zip(samples, counts, strict=True)
        }
        for step in range(steps)
    ]


def fed(program: popc_runtime.Executable, samples: Mapping[str, Array]) -> dict[str, list[Array]]:
    """The results of all steps, by output."""
    results = [program.run(feeds) for feeds in splits(program, samples)]
    return {name: [result[name] for result in results] for name in results[0]}


def random_samples(count: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Micro-batches of normal numbers."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, *shape)).astype(np.float32)
