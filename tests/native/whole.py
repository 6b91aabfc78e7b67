"""Small archives of every kind, as the compiler writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper, parser

import popc
from popc_runtime.format import Array
from samples.networks import digits_mlp, sorting_transformer
from tests.replication.models import normalised
from tests.streaming.networks import EVERYTHING, training
from tests.support.classical import colours_model

__all__ = ["HOST_CALLS", "archives"]

# What the archive "host" calls; the others call nothing.
HOST_CALLS: Final[Mapping[str, Callable[[Array], Array]]] = {"double": lambda given: 2 * given}

_CONVOLUTIONS: Final = """
g (float[2,3,12,12] x, float[16,3,3,3] v, float[16,1,3,3] d, float[32,16,1,1] p, float[1152,5] w)
=> (float[2,5] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, v)
    b = Relu (a)
    c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
    e = Conv <group = 16, pads = [1, 1, 1, 1]> (c, d)
    f = Conv (e, p)
    h = Flatten (f)
    y = MatMul (h, w)
}"""
_BYTES: Final = """
g (float[4,24] x, int8[24,32] w) => (float[4,32] y) <
    float scale = {0.05}, uint8 zero = {128}, int8 none = {0}
> {
    a = QuantizeLinear (x, scale, zero)
    b = DequantizeLinear (a, scale, zero)
    c = DequantizeLinear (w, scale, none)
    d = MatMul (b, c)
    e = QuantizeLinear (d, scale, zero)
    y = DequantizeLinear (e, scale, zero)
}"""
_BLOCKS: Final = """
g (float[4,2] x, bool flag, float[2,2] w, float[7,2] table, int64[3] places)
=> (float[2] y, float[3,2] rows, float[2] k) <float[2] start = {0.5, 0.25}, int64 three = {3}> {
    zero = ReduceSum <keepdims = 0> (x)
    first = Add (start, zero)
    h = Scan <num_scan_inputs = 1, body = step (float[2] h1, float[2] row) => (float[2] h2) {
        a = MatMul (h1, w)  b = Add (row, a)  h2 = Tanh (b)
    }> (first, x)
    y = If (flag) <
        then_branch = t () => (float[2] r) { r = Mul (h, start) },
        else_branch = e () => (float[2] n) { n = Neg (h) }
    >
    k = Loop <body = turn (int64 i, bool go, float[2] s) => (bool still, float[2] u) {
        still = Identity (go)  u = Add (s, h)
    }> (three, flag, first)
    rows = Gather (table, places)
}"""
_CALLS_HOST: Final = """
g (float[3,4] x, float[4,2] w) => (float[3,2] y, float[3,2] z) {
    a = MatMul (x, w)
    y = ai.graphcore.HostCall <function = "double"> (a)
    z = Tanh (y)
}"""
_TABLE: Final = """
g (int32[5] i, float[20,6] t, float[6,6] w) => (float[5,6] y) {
    e = Gather (t, i)
    h = MatMul (e, w)
    y = Tanh (h)
}"""
_RECURRENT: Final = """
g (float[4,2,3] x, float[2,20,3] w, float[2,20,5] r, float[2,40] b, float[1,15,5] u,
   float[1,15,5] v, int64[1] axis, int32[2] ends)
=> (float[4,1,2,5] y, float[1,2,5] last, float[2,2,5] cell) {
    both, state, cell = LSTM <hidden_size = 5, direction = "bidirectional"> (x, w, r, b, ends)
    first = ReduceMean <keepdims = 0> (both, axis)
    y, last = GRU <hidden_size = 5, linear_before_reset = 1> (first, u, v)
}"""
_TREES: Final = """
g (float[3,4] x) => (int64[3] y, float[3,2] scores) {
    y, scores = ai.onnx.ml.TreeEnsembleClassifier <
        nodes_treeids = [0, 0, 0, 0, 0, 1, 1, 1], nodes_nodeids = [0, 1, 2, 3, 4, 0, 1, 2],
        nodes_featureids = [0, 0, 1, 0, 0, 3, 0, 0],
        nodes_values = [0.5, 0.0, -0.5, 0.0, 0.0, 1.5, 0.0, 0.0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "BRANCH_LT", "LEAF",
                       "LEAF"],
        nodes_truenodeids = [1, 0, 3, 0, 0, 1, 0, 0],
        nodes_falsenodeids = [2, 0, 4, 0, 0, 2, 0, 0],
        nodes_missing_value_tracks_true = [0, 0, 1, 0, 0, 0, 0, 0],
        class_treeids = [0, 0, 0, 1, 1], class_nodeids = [1, 3, 4, 1, 2],
        class_ids = [0, 1, 0, 1, 0], class_weights = [1.0, 2.0, 3.0, 4.0, 5.0],
        classlabels_int64s = [3, 7]
    > (x)
}"""


def _model(text: str, **weights: Array) -> onnx.ModelProto:
    """Inputs in whose place there are ``weights`` are constants."""
    domains = '"": 21, "ai.graphcore": 1, "ai.onnx.ml": 3'
    model = parser.parse_model(f"<ir_version: 10, opset_import: [{domains}]>\n{text}")
    inputs = [declared for declared in model.graph.input if declared.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    return model


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _lately() -> dict[str, popc.Archive]:
    """Archives with what later minor versions of the format and the newest kernels added."""
    return {
        "host": popc.compile(_model(_CALLS_HOST, w=_numbers(4, 2))),
        "recurrent": popc.compile(
            _model(
                _RECURRENT,
                w=_numbers(2, 20, 3),
                r=_numbers(2, 20, 5),
                b=_numbers(2, 40),
                u=_numbers(1, 15, 5),
                v=_numbers(1, 15, 5),
                axis=np.array([1], np.int64),
            )
        ),
        "rows": popc.compile(
            _model(_TABLE, t=_numbers(20, 6), w=_numbers(6, 6)),
            options={"tensor_location_override": {"t": "off_chip"}},
            loss={"type": "l1", "input": "y"},
            optimizer={"type": "sgd", "learning_rate": 0.1},
        ),
        "trees": popc.compile(_model(_TREES)),
        "words": popc.compile(colours_model()),
    }


def _compiled() -> dict[str, popc.Archive]:
    weights = {"v": _numbers(16, 3, 3, 3), "d": _numbers(16, 1, 3, 3), "p": _numbers(32, 16, 1, 1)}
    convolutions = _model(_CONVOLUTIONS, **weights, w=_numbers(1152, 5))
    quantised = _model(_BYTES, w=np.arange(-384, 384).reshape(24, 32).astype(np.int8))
    blocks = _model(
        _BLOCKS, w=_numbers(2, 2), table=_numbers(7, 2), places=np.array([0, 6, 3], np.int64)
    )
    transformer = sorting_transformer(size=16, layers=2)
    adam = training(type="adam", learning_rate=0.01)
    steps: dict[str, Any] = {"batches_per_step": 2, "accumulation_factor": 2, **EVERYTHING}
    return {
        "convolutions": popc.compile(convolutions),
        "bytes": popc.compile(quantised),
        "blocks": popc.compile(blocks),
        "calls": popc.compile(
            transformer, shapes={"tokens": (2, 10)}, options={"enable_outlining": True}
        ),
        "training": popc.compile(
            digits_mlp(hidden=16), shapes={"image": (4, 64)}, train=adam, options=steps
        ),
        **_lately(),
        "replicas": popc.compile(normalised(), options={"replicated_graph_count": 2}),
    }


@cache
def archives() -> dict[str, bytes]:
    """Archives by what they have: their bytes."""
    with TemporaryDirectory() as folder:
        return {
            name: archive.save(Path(folder, f"{name}.popx")).read_bytes()
            for name, archive in _compiled().items()
        }
