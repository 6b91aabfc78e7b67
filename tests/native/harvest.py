"""Instructions on operands, from what is tested anyway: every op occurs there.

ONNX's tests of operators, the cases of gradients, the optimizers on a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import cache, partial
from io import StringIO
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from popc.frontend import Bindings, import_model, load_model
from popc.ir import TensorType
from popc_runtime.errors import PopcError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.parts.fused_steps import FusedStep, written
from tests.autodiff.test_gradients import _CASES
from tests.conformance.cases import Case, cases
from tests.native.problems import Problem
from tests.optimizers.cases import CASES as OPTIMIZERS
from tests.optimizers.network import train
from tests.support import oracles
from tests.support.gradients import Case as GradientCase
from tests.support.gradients import _differentiated
from tests.support.oracles import run_graph

__all__ = ["problems"]

_LARGEST: Final = 1 << 16  # elements: some of ONNX's tests are photographs
_LINE: Final = np.linspace(-2, 2, 40, dtype=np.float32).reshape(5, 8)
_IMAGE: Final = np.linspace(-2, 2, 2 * 9 * 4 * 5, dtype=np.float32).reshape(2, 9, 4, 5)
_F32: Final = DType.FLOAT32
_CHAINS: Final[tuple[tuple[tuple[Array, ...], tuple[FusedStep, ...]], ...]] = (
    ((_IMAGE, _IMAGE * 3), (FusedStep("Add", (0, 1), _F32, {}), FusedStep("Relu", (2,), _F32, {}))),
    (
        (_IMAGE, _IMAGE[:1, :, :1, :1], _IMAGE / 2),
        (
            FusedStep("Mul", (0, 1), _F32, {}),
            FusedStep("Sigmoid", (3,), _F32, {}),
            FusedStep("Sub", (4, 2), _F32, {}),
        ),
    ),
    (
        (_IMAGE, _IMAGE[..., :1] + 1),
        (FusedStep("Greater", (0, 1), DType.BOOL, {}), FusedStep("Where", (2, 0, 1), _F32, {})),
    ),
    (
        (_IMAGE.astype(np.float16),),
        (
            FusedStep("Cast", (0,), _F32, {"to": "float32"}),
            FusedStep("Exp", (1,), _F32, {}),
            FusedStep("Cast", (2,), DType.FLOAT16, {"to": "float16"}),
        ),
    ),
)
_SCALARS: Final[tuple[Array, ...]] = tuple(np.array(number) for number in (0.5, 0.25, 0.75))


def _experts() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """Rows of several experts, in floats and in few bits."""
    choice = np.array([2, 0, 2, 1, 2])
    weights, bias = _IMAGE.reshape(3, 3, 40)[:, :, :8], _LINE[:3, :3]
    for given in (None, bias):
        yield "ExpertMatMul", [_LINE, choice, weights, given], {}
    packed = np.arange(3 * 3 * 2 * 8, dtype=np.uint8).reshape(3, 3, 2, 8)
    scales = np.linspace(0.1, 1, 18, dtype=np.float32).reshape(3, 3, 2)
    rows = np.concatenate([_LINE] * 4, axis=1)
    points = np.arange(9, dtype=np.uint8).reshape(3, 3, 1)
    attributes: dict[str, Attribute] = {"bits": 4, "block_size": 16, "K": 32}
    for zero in (None, points, scales):
        yield "ExpertMatMulNBits", [rows, choice, packed, scales, zero, bias], attributes


def _further() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """What does not occur among those, or not as kernels take it."""
    yield from _experts()
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        numbers = np.arange(40, dtype=dtype)
        for way in ("LEFT", "RIGHT"):
            yield "BitShift", [numbers, numbers[::-1]], {"direction": way}
    yield from _of_integers()
    yield "Equal", [np.array([True, False, True]), np.array([True, True, False])], {}
    for quantised, zero in ((np.int8, np.array(3, np.int8)), (np.uint8, None), (np.int32, None)):
        operands = [np.arange(40).astype(quantised), np.array(0.5, np.float32), zero]
        yield "DequantizeLinear", operands, {"axis": 0, "block_size": 0, "dtype": "float32"}
    for target in (np.int8, np.int16, np.uint16):
        name = np.dtype(target).name
        how: dict[str, Attribute] = {
            "axis": 0,
            "block_size": 0,
            "dtype": name,
            "saturate": 1,
        }
        yield "QuantizeLinear", [_LINE, np.array(0.5, np.float32), np.array(3, target)], how
    three: list[Array | None] = [_LINE, _LINE + 1, _LINE * 2]
    levels = np.linspace(-1, 1, 5, dtype=np.float32)
    moved: dict[str, Attribute] = {
        "strides": (2, 2),
        "dilations": (1, 1),
        "pads": (0,) * 4,
        "group": 1,
    }
    ends: dict[str, Attribute] = {"pads": (0,) * 4, "group": 1}
    many, wide = np.resize(_LINE, (9, 6, 3, 3)), np.resize(_LINE, (32, 2, 3, 3))
    yield "ConvTranspose", [np.resize(_LINE, (1, 9, 9, 8)), many, None], moved | ends
    yield "ConvTranspose", [np.resize(_LINE, (1, 32, 2, 33)), wide, _LINE[0, :2]], moved | ends
    yield "BinCount", [_LINE, levels], {"absolute": 0}
    yield "Bucketize", [_LINE, levels], {"right": 1}
    yield "Histogram", [_LINE], {"levels": (-0.5, 0.5)}
    yield "Multinomial", [_LINE], {"sample_size": 9, "to": "int64"}
    yield "RandomNormal", [], {"shape": (7, 9), "mean": -1.0, "scale": 2.0, "to": "float32"}
    yield "RandomUniform", [], {"shape": (7, 9), "low": -1.0, "high": 2.0, "to": "float32"}
    yield "SGD2AcclUpdate", [*three, *_SCALARS], {}
    yield "SGDNesterovVarUpdate", [*three, *_SCALARS], {}
    yield "ScaledGradient", [*three[:2], *_SCALARS[:2]], {"to": "float32"}


def _of_integers() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """Maps of integers that are rare in models."""
    for dtype in (np.int16, np.uint16, np.uint32):
        numbers = np.arange(40, dtype=dtype) - np.array(20).astype(dtype)
        for opcode in ("Abs", "BitwiseNot", "Neg", "Sign"):
            yield opcode, [numbers], {}
        for opcode in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield opcode, [numbers, numbers[::-1]], {}
        for fmod in (0, 1):
            yield "Mod", [numbers, numbers[::-1]], {"fmod": fmod}
    yield "Relu", [np.arange(-20, 20, dtype=np.int16)], {}


def _casts() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """Between all numbers of processors: what wraps around, what is cut, and what is no number."""
    whole = np.array([-(2**31), -70_000, -129, -128, -1, 0, 1, 127, 128, 255, 256, 2**31 - 1] * 4)
    parts = np.array([-2.75, -1, -0.5, -0.0, 0.0, 1e-40, 0.5, 1.5, 2.25, 100.75, 126.5] * 4)
    types = (DType.BOOL, DType.UINT8, DType.INT8, DType.INT32, DType.INT64, _F32, DType.FLOAT64)
    for source in types:
        numbers = parts if source.is_float else whole
        for target in types:
            if source is not target:
                yield "Cast", [numbers.astype(source.storage)], {"to": target.value}
    # Of floats that these do not hold numpy makes one thing or the other.
    others = (DType.INT16, DType.UINT16, DType.UINT32, DType.UINT64)
    for source in (*others, *(dtype for dtype in types if not dtype.is_float)):
        for target in (*others, *types):
            if source is not target and {source, target} & {*others}:
                yield "Cast", [whole.astype(source.storage)], {"to": target.value}


def _trees() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """Two trees about five features, of two and of one question; of all kinds of questions."""
    whole = ([0 << 3, 3 << 3 | 1, 0, 0, 0, 4 << 3, 0, 0], [2, -1, 4, -2, -3, 7, -4, -1],
             [0, 5], [0, 1, 2, 2, 4], [0, 1, 0, 1])  # fmt: skip
    numbers = ([0.5, -0.25, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], [0.5, -1.5, 2.0, 0.25])
    for dtype, flags, aggregate in (
        (np.float32, 0, "SUM"),
        (np.float64, 0, "MIN"),
        (np.float32, 6, "MAX"),
    ):
        features, children, roots, starts, targets = (np.array(part, np.int32) for part in whole)
        thresholds, weights = (np.array(part, dtype) for part in numbers)
        x = _LINE[:, :5].astype(dtype)
        tables = [features | flags, thresholds, children, roots, starts, targets, weights]
        yield "TreeEnsemble", [x, *tables], {"n_targets": 2, "aggregate": aggregate}


def _selections() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """Results of which data decides the size."""
    bound: dict[str, Attribute] = {"tensor": "y", "bound": 64}
    whole = np.arange(12).reshape(3, 4) % 5
    yield "NonZero", [whole], {**bound, "bound": 12}
    yield "Unique", [whole, None], {**bound, "axis": 1, "bound": 4, "sorted": 0}
    yield "Unique", [whole.reshape(-1), np.array(7)], {**bound, "axis": 0, "bound": 12, "sorted": 1}
    yield "CheckSize", [np.array(3), None], bound
    yield "CheckSize", [np.array(3), np.array(3)], bound
    valid = np.array([[True], [False], [True]])
    yield "PlacesWithin", [whole, np.array(9), valid], {"padding": 5}
    yield "PlacesWithin", [whole[:, :2] - 1, np.array([9, 8]), None], {"padding": 0}
    boxes = np.array([[[0, 0, 4, 4], [1, 1, 5, 5], [7, 7, 9, 9]]], np.float32)
    scores = np.array([[[0.5, 0.75, 0.25], [0.25, 0.5, 0.125]]], np.float32)
    limits = [np.array(2), np.array(0.25, np.float32), np.array(0.2, np.float32)]
    selected: dict[str, Attribute] = {**bound, "bound": 4, "center_point_box": 0}
    yield "NonMaxSuppression", [boxes, scores, *limits, np.array(2)], selected


def _layers_of_bytes() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    """LSTMs, from plain to one with everything."""
    weights, scale = (_IMAGE[0, :4] * 60).reshape(1, 20, 4).astype(np.int8), np.float32(0.02)
    scales = np.full((2, 20), scale)
    for ways, direction in ((1, "forward"), (2, "bidirectional")):
        w, r = np.repeat(weights, ways, 0), np.repeat(np.resize(weights, (1, 20, 5)), ways, 0)
        zero = np.full((ways, 20), 9, np.int8) if ways == 2 else None
        bias = np.resize(_IMAGE, (ways, 40))
        states = [np.resize(_IMAGE, (ways, 2, 5))] * 2 if ways == 2 else [None, None]
        lengths = np.array([3, 2], np.int32) if ways == 2 else None
        parameters = [scales[:ways], zero, scales[:ways], zero]
        attributes: dict[str, Attribute] = {
            "direction": direction,
            "activations": ("sigmoid", "tanh", "tanh") * ways,
            "alphas": (0.0,) * 3 * ways,
            "betas": (0.0,) * 3 * ways,
            "clip": 0.0,
            "input_forget": 0,
        }
        x = np.resize(_IMAGE, (3, 2, 4))
        for peepholes in (None, np.resize(_IMAGE, (ways, 15))):
            operands = [x, w, r, bias, lengths, *states, peepholes, *parameters]
            yield "DynamicQuantizeLSTM", operands, attributes


def _made_by_passes() -> Iterator[tuple[str, list[Array | None], dict[str, Attribute]]]:
    for opcode in ("Boundary", "RemoteLoad", "RemoteStore"):
        yield opcode, [_LINE], {}
    table, places = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([2, 0, 2])
    yield "RemoteGather", [table, places], {"axis": 0}
    yield "RemoteScatterAdd", [table, places, table[:3], np.array(-0.5, np.float32)], {"axis": 0}
    yield "IoTileCopy", [_LINE], {"source": "io", "destination": "compute"}
    yield "IpuCopy", [_LINE], {"source": 0, "destination": 1}
    yield "AssumeEqualAcrossReplicas", [_LINE], {}
    yield "ReplicaIndex", [], {}
    group: dict[str, Attribute] = {"stride": 1, "size": 1}
    for opcode in ("AllToAll", "ReplicaPart", "ReplicatedAllGather"):
        yield opcode, [_LINE[:1]], group
    yield "ReplicatedBroadcast", [_LINE], {**group, "root": 0}
    for op in ("add", "mean", "square_add", "local"):
        yield "ReplicatedAllReduce", [_LINE], {**group, "op": op}
        yield "ReplicatedReduceScatter", [_LINE], {**group, "op": op}
    for number in (0, 3, 7):
        yield "Stash", [_LINE, _LINE[1] + 1, np.array(number)], {}
        yield "Restore", [_LINE, np.array(number)], {}
    logs = np.log(np.full((4, 2, 3), 1 / 3, np.float32)) + _IMAGE[0, :4, :2, :3] / 9
    decoded: dict[str, Attribute] = {"blank": 0, "beam_width": 4, "top_paths": 2}
    yield "CtcBeamSearchDecoder", [logs, np.array([4, 3])], decoded
    counts, scalars = np.array([89, 11], np.float32), [np.array(n, np.float32) for n in (4, 100, 6)]
    growing: dict[str, Attribute] = {"threshold": 0.1, "period": 3, "largest": 1024.0}
    yield "LossScaleUpdate", [scalars[0], counts, *scalars[1:]], growing
    for inputs, steps in _CHAINS:
        yield "FusedElementwise", list(inputs), written(steps)


def _added_by_lowering() -> Iterator[Problem]:
    table = TensorType(DType.FLOAT32, (1, 5, 8))
    row, index = TensorType(DType.FLOAT32, (5, 8)), TensorType(DType.INT64, ())
    yield Problem("Fill", (), (), {"value": 3.0}, (), (row,))
    stored = (_LINE, np.array(0))
    yield Problem("StackStore", stored, (row, index), {}, (False, False), (table,))


def _of_eight_bits() -> Iterator[Problem]:
    """Floats that numpy has as codes alone."""
    numbers, scale = TensorType(_F32, _LINE.shape), TensorType(DType.INT32, ())
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    for dtype in (dtype for dtype in DType if dtype.is_float8):
        types = (TensorType(dtype, codes.shape), scale)
        given = (codes, np.array(-2, np.int32))
        yield Problem("CastThenPow2Scale", given, types, {"to": "float32"}, (False, False))
        rounded: dict[str, Attribute] = {"to": dtype.value, "saturate": 1}
        wide = (_LINE, np.array(3, np.int32))
        yield Problem("Pow2ScaleThenCast", wide, (numbers, scale), rounded, (False, False))


@cache
def problems() -> Mapping[str, list[Problem]]:
    """Problems by opcode; no two differ in numbers only."""
    found: dict[object, Problem] = {}

    def note(
        opcode: str,
        inputs: Sequence[Array | None],
        types: Sequence[TensorType | None],
        attributes: Mapping[str, Attribute],
        constant: Sequence[bool],
    ) -> list[Array]:
        results = compute(opcode, inputs, types, attributes, constant)
        problem = Problem(opcode, tuple(inputs), tuple(types), attributes, tuple(constant))
        if (
            max((operand.size for operand in (*inputs, *results) if operand is not None), default=0)
            < _LARGEST
        ):
            found.setdefault(problem.key(), problem)
        return results

    compute = oracles.run_kernel
    with (
        patch.object(oracles, "run_kernel", note),
        redirect_stderr(StringIO()),
        np.errstate(all="ignore"),
    ):
        for run in _runs():
            with suppress(PopcError):
                run()
        for opcode, inputs, attributes in (
            *_further(),
            *_casts(),
            *_trees(),
            *_layers_of_bytes(),
            *_selections(),
            *_made_by_passes(),
        ):
            oracles.run_ir(opcode, inputs, attributes)
    listed: dict[str, list[Problem]] = {}
    for problem in (*found.values(), *_added_by_lowering(), *_of_eight_bits()):
        listed.setdefault(problem.opcode, []).append(problem)
    return listed


def _runs() -> Iterator[Callable[[], object]]:
    for case in cases("node").values():
        yield partial(_run_case, case)
    for gradient in _CASES:
        for dtype in (np.float32, np.float64):
            yield partial(_run_gradient, gradient, dtype)
    for settings, _ in OPTIMIZERS.values():
        yield partial(train, settings, dtype=np.float32, steps=2)  # others differ in numbers only


def _run_gradient(case: GradientCase, dtype: Any) -> None:
    run_graph(_differentiated(case, dtype)[0], case.feeds(dtype))


def _run_case(case: Case) -> None:
    """Compute a test of ONNX's; what has to be known when it is imported is bound."""
    given = dict(zip((info.name for info in case.inputs()), case.data_sets[0][0], strict=False))
    plain = {info.name for info in case.inputs() if info.type.HasField("tensor_type")}
    if any(np.asarray(given[name]).dtype.kind in "OUS" for name in plain & given.keys()):
        return  # a graph takes the places of words, not words
    discrete = {
        name for name in plain & given.keys() if np.asarray(given[name]).dtype.kind in "iub"
    }
    for kept in (plain & given.keys(), plain & given.keys() - discrete):
        feeds = {name: np.asarray(given[name]) for name in kept}
        shapes = {name: array.shape for name, array in feeds.items()}
        bound = {name: value for name, value in given.items() if name not in kept}
        with suppress(PopcError):
            graph = import_model(
                load_model(case.model), Bindings(shapes=shapes, values=bound)
            ).graph
            if all(op.op_type in KERNELS for op in graph.ops):
                run_graph(graph, feeds)
            return
