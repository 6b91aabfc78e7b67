"""Records of every kernel, and the tensors in their words."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from popc.ir import TensorType
from popc_runtime.errors import PopcError
from popc_runtime.format import Array, DType, Packing
from popc_runtime.kernels import RandomState
from popc_runtime.kernels.parts.common_left import CommonLeft, common_left
from popc_runtime.kernels.parts.fused_steps import FusedStep, written
from popc_runtime.kernels.parts.lstm_steps import LstmSteps, lstm_steps
from popc_runtime.native import Library, Record
from popc_runtime.native import encode as encode_views
from popc_runtime.native.forms import plain_product_record
from popc_runtime.native.record import MAX_RANK, tensor_words
from popc_runtime.native.translation import translate
from popc_runtime.native.views import as_view
from tests.native.bindings import bound, encode, viewed
from tests.native.harvest import problems
from tests.native.panels import in_panels, with_panels
from tests.native.problems import Problem, known, narrowed

__all__ = [
    "ADDRESSES",
    "HEAD",
    "SIZES",
    "Sample",
    "Tensor",
    "packed_samples",
    "samples",
    "shared_samples",
]

SIZES: Final = (4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, 1)  # of elements, by the numbers of types
HEAD: Final = 4  # words before shape and strides: address, type, whether it is constant, rank
# Other words are small or the bits of a float.
ADDRESSES: Final = range(1 << 20, 1 << 48)
# Of operands, besides those that problems have.
_TYPES: Final = (DType.INT32, DType.INT64, DType.UINT64, DType.UINT8, DType.INT8, DType.FLOAT64)
_CHOICE: Final = 9  # numbers below choose rather than count
_LARGEST: Final = 1 << 18  # bytes of operands
_PACKED: Final = 2  # instead of whether a tensor is constant
_PANEL: Final = 16  # columns
# Their second tensor is a window, of which only the shape is read: it has no memory of its own.
_POOLS: Final = frozenset({"Pool_f32", "PoolLast_f32"})
_QUANTIZED: Final = {"axis": 0, "block_size": 0, "output_dtype": "int8", "saturate": 1}
_Given: TypeAlias = "tuple[str, list[Array | None], list[Array], Mapping[str, Any], Sequence[int]]"


@dataclass(frozen=True)
class Tensor:
    """A tensor among the words of a record, which begin at ``place``; ``rank`` as it was."""

    place: int
    dtype: int
    constant: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rank: int
    contents: bytes = b""  # from the lowest address that it has an element at
    below: int = 0  # bytes from there to the first element
    columns: int = 0  # their axis, if it is packed

    def words(self, address: int) -> tuple[int, ...]:
        """As `tensor_words`."""
        head = (address, self.dtype, self.constant, len(self.shape))
        return (*head, *self.shape, *self.strides)

    @property
    def extent(self) -> tuple[int, int]:
        """Bytes in front of the first element, and from there to the end."""
        if 0 in self.shape:
            return 0, 0
        if self.constant == _PACKED:
            dims = list(self.shape[-2:] if self.columns < 0 else self.shape) or [1]
            dims[self.columns] = -(-dims[self.columns] // _PANEL) * _PANEL
            return 0, prod(dims) * SIZES[self.dtype]
        spans = [(dim - 1) * step for dim, step in zip(self.shape, self.strides, strict=True)]
        low, high = (sum(span for span in spans if span * sign > 0) for sign in (-1, 1))
        return -low, high + SIZES[self.dtype]


@dataclass(frozen=True)
class Sample:
    """A record that a kernel takes, and the tensors in it."""

    kernel: str
    words: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    kept: object


def samples(
    library: Library, most: int = 3, *, by_choices: bool = False
) -> dict[str, list[Sample]]:
    """Up to ``most`` records of each kernel, of those that instructions of all kinds need.

    Records are of a kind if their tensors are alike, and if the small numbers beside them, by which
    a kernel chooses what it does, are the same where ``by_choices``.
    """
    found: dict[str, dict[object, Sample]] = {}
    for record, memory in _found(library):
        sample = _sample(record, memory)
        kind = (_kind(sample), _choices(sample) if by_choices else ())
        found.setdefault(record.kernel, {}).setdefault(kind, sample)
    return {kernel: _chosen(list(kinds.values()), most) for kernel, kinds in found.items()}


def packed_samples(library: Library) -> dict[str, list[Sample]]:
    """A record of each kernel that reads panels, in which the weights are packed."""
    image, last = _floats(1, 28, 28, 32), np.empty((1, 28, 28, 40), np.float32)
    conv = [np.moveaxis(item, -1, 1) for item in (image, last)]
    padded = {"pads": (1, 1, 1, 1)}
    found: dict[str, list[Sample]] = {}
    for opcode, x, w, out, attributes, packing in (
        ("MatMul", _floats(5, 7), _floats(7, 20), _floats(5, 20), {}, Packing.COLUMNS),
        ("Conv", conv[0], _floats(40, 32, 1, 1), conv[1], {}, Packing.ROWS),
        ("Conv", conv[0], _floats(40, 32, 3, 3), conv[1], padded, Packing.ROWS),
    ):
        packed = in_panels(w, packing)
        binding = with_panels(viewed(bound([x, w], [out], attributes, (1,))), packed, packing)
        record = encode_views(opcode, binding, library.numbers)
        assert record is not None
        found[record.kernel] = [_sample(record, (packed, x, out))]
    return found


def _lines() -> tuple[Array, Array]:
    """What is convolved along one axis by Winograd's algorithm."""
    return _floats(1, 64, 1, 130), _floats(64, 64, 1, 5)


def shared_samples(library: Library) -> dict[str, list[Sample]]:
    """A record of few rows through a long tree many times: trees, not rows, are shared out."""
    questions, times = 31, 128
    leaves = np.arange(questions + 1, dtype=np.int32)
    children = np.full(2 * questions + 1, -1, np.int32)
    children[0:-1:2], children[1::2], children[-1] = 2 * leaves[1:], -1 - leaves[:-1], ~leaves[-1]
    thresholds = np.where(children > 0, np.float32(0.5), np.float32(0))
    starts = np.arange(questions + 2, dtype=np.int32)
    tables = [np.zeros_like(children), thresholds, children, np.zeros(times, np.int32)]
    operands = [_floats(5, 1), *tables, starts, leaves % 2, leaves.astype(np.float32)]
    attributes = {"n_targets": 2, "aggregate": "SUM"}
    binding = bound(operands, [np.empty((5, 2), np.float32)], attributes, tuple(range(1, 8)))
    record = encode("TreeEnsemble", binding, library.numbers)
    assert record is not None
    return {record.kernel: [_sample(record, binding)]}


def _found(library: Library) -> Iterator[tuple[Record, object]]:
    for listed in problems().values():
        for number, problem in enumerate(listed):
            for form in _forms(problem, all_types=number < 3):
                yield from _records(library, form)
    for opcode, inputs, outputs, attributes, constant in _further():
        binding = bound(inputs, outputs, attributes, constant)
        yield from _parts(encode(opcode, binding, library.numbers), binding)
    doubles = [as_view(np.ones(shape)) for shape in ((2, 3, 4), (4, 5), (2, 3, 5))]
    yield plain_product_record(*doubles), doubles
    steps = LstmSteps(
        r=_floats(1, 80, 20),
        gates=_floats(5, 1, 3, 2, 20),
        cells=_floats(1, 4, 2, 20),
        given=_floats(3, 1, 2, 20),
        rows=_floats(1, 6, 80),
        dh=_floats(1, 2, 20),
        dc=_floats(1, 2, 20),
        backward=(True,),
        first=True,
    )
    back = translate(partial(lstm_steps, (), steps), {"LstmSlopes_f32"})
    assert back is not None
    yield back, steps
    turned = CommonLeft(_floats(300, 13), [(_floats(300, n), _floats(13, n)) for n in (5, 32)])
    both = translate(partial(common_left, (), turned), {"CommonLeft_f32"})
    assert both is not None
    yield both, turned
    numbers = as_view(_floats(5, 9))
    state = RandomState(0)
    source = as_view(state.rounding_source).address
    yield Record("Round_narrow", (source, *tensor_words(numbers), 1, 0)), (numbers, state)


def _further() -> Iterator[_Given]:
    """What no other test has, or not as these kernels take it."""
    # Of types that no model has there, all of them by way of the widest integers.
    truth, small = np.arange(40) % 3 > 0, np.arange(40, dtype=np.int8)
    for opcode in ("Add", "Mul", "Sub", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield opcode, [truth, truth[::-1]], [truth.copy()], {}, ()
    for way in ("LEFT", "RIGHT"):
        yield "BitShift", [small, small], [small.copy()], {"direction": way}, ()
    steps = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1)}
    conv = {**steps, "group": 1, "kernel_shape": (3, 3)}
    image, last = _floats(1, 32, 28, 28), np.moveaxis(_floats(1, 7, 7, 32), -1, 1)
    weights, taps = _floats(32, 32, 3, 3), _floats(32, 1, 3, 3)
    plain, turned = np.empty_like(image), np.moveaxis(np.empty((1, 7, 7, 32), np.float32), -1, 1)
    for constant in ((), (1,)):
        yield "Conv", [image, weights, _floats(32), image], [plain], conv, constant
        yield "Conv", [last, weights, _floats(32), last], [turned], conv, constant
        yield "Conv", [last, taps, None, None], [turned], {**conv, "group": 32}, constant
        few, short, line, long = _floats(1, 12, 9, 30), _floats(12, 12, 3, 3), *_lines()
        yield "Conv", [few, short, _floats(12), few], [np.empty_like(few)], conv, constant
        along = {**conv, "kernel_shape": (1, 5), "pads": (0, 2, 0, 2)}
        yield "Conv", [line, long, _floats(64), None], [np.empty_like(line)], along, constant
    square = _floats(1, 32, 8, 8)
    yield "ConvWeightsGrad", [square, square], [_floats(32, 32, 3, 3)], conv, ()
    pool = {**steps, "kernel_shape": (3, 3), "count_include_pad": 0}
    for opcode in ("MaxPool", "AveragePool"):
        yield opcode, [last], [turned], pool, ()
    rates: list[Array | None] = [np.array(0.5, np.float32) for _ in range(5)]
    three = [_floats(9) for _ in range(3)]
    for mode in ("adam", "adamax"):
        for decay in (0.0, 0.5):
            scalars = [np.array(decay, np.float32), *rates[1:]]
            yield "AdamUpdater", [*three, *scalars], [_floats(9)], {"mode": mode}, (3,)
    quantized = np.empty((5, 9), np.int8)
    scale, zero = np.array(0.5, np.float32), np.array(3, np.int8)
    yield "QuantizeLinear", [_floats(5, 9), scale, zero], [quantized], _QUANTIZED, (1, 2)
    for narrow, wide in ((np.int32, np.int64), (np.int64, np.int32)):
        yield "Cast", [np.zeros(9, narrow)], [np.zeros(9, wide)], {"to": np.dtype(wide).name}, ()
    chain = written(
        (FusedStep("Add", (0, 1), DType.FLOAT32, {}), FusedStep("Relu", (2,), DType.FLOAT32, {}))
    )
    yield "FusedElementwise", [_floats(5, 9), _floats(9)], [_floats(5, 9)], chain, ()


def _floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _chosen(found: list[Sample], most: int) -> list[Sample]:
    """The smallest, and others from all sizes."""
    found.sort(key=lambda sample: sum(prod(tensor.shape) for tensor in sample.tensors))
    return found[:: max(1, -(-len(found) // most))]


def _kind(sample: Sample) -> object:
    return tuple((tensor.dtype, tensor.constant, len(tensor.shape)) for tensor in sample.tensors)


def _choices(sample: Sample) -> tuple[int, ...]:
    """Small numbers among the words, but for those of tensors."""
    of_tensors = {
        tensor.place + word for tensor in sample.tensors for word in range(HEAD + 2 * tensor.rank)
    }
    words = enumerate(sample.words)
    return tuple(word for place, word in words if place not in of_tensors and abs(word) < _CHOICE)


def _forms(problem: Problem, *, all_types: bool) -> Iterator[Problem]:
    yield problem
    yield known(problem)
    half = narrowed(problem, DType.FLOAT16)
    if half is not None:
        yield half
    for dtype in _TYPES if all_types else ():
        with np.errstate(all="ignore"):
            inputs = tuple(
                operand if operand is None else operand.astype(dtype.storage)
                for operand in problem.inputs
            )
        types = [
            None if operand is None else TensorType(dtype, operand.shape) for operand in inputs
        ]
        yield replace(problem, inputs=inputs, types=tuple(types))


def _records(library: Library, problem: Problem) -> Iterator[tuple[Record, object]]:
    inputs = tuple(None if operand is None else operand.copy() for operand in problem.inputs)
    with suppress(PopcError, ValueError, IndexError, KeyError), np.errstate(all="ignore"):
        types = problem.output_types
        outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in types)
        operands = [operand for operand in (*inputs, *outputs) if operand is not None]
        sizes = [operand.size for operand in operands]
        if min(sizes, default=0) and sum(operand.nbytes for operand in operands) <= _LARGEST:
            binding = problem.binding(inputs, outputs)
            yield from _parts(encode(problem.opcode, binding, library.numbers), binding)


def _parts(record: Record | None, memory: object) -> Iterator[tuple[Record, object]]:
    if record is not None:
        for item in (*record.before, record, *record.after):
            yield item, (memory, record)


def _sample(record: Record, memory: object) -> Sample:
    words, place = record.words, 0
    tensors: list[Tensor] = []
    while place < len(words):
        tensor = _tensor_at(words, place)
        if tensor is None:
            place += 1
        else:
            if record.kernel == "Product_f32":
                tensor = replace(tensor, columns=-1)
            is_window = record.kernel in _POOLS and len(tensors) == 1
            tensors.append(tensor if is_window else _with_contents(tensor, words[place]))
            place += HEAD + 2 * tensor.rank
    return Sample(record.kernel, words, tuple(tensors), (memory, record))


def _tensor_at(words: Sequence[int], place: int) -> Tensor | None:
    """The tensor that begins at ``place``, if one does."""
    address, dtype, constant, rank = (*words[place : place + HEAD], -1, -1, -1)[:HEAD]
    if address not in ADDRESSES or dtype not in range(13) or constant not in {0, 1, _PACKED}:
        return None
    if rank not in range(MAX_RANK + 1) or place + HEAD + 2 * rank > len(words):
        return None
    first = place + HEAD
    shape = tuple(words[first : first + rank])
    strides = tuple(words[first + rank : first + 2 * rank])
    return Tensor(place, dtype, constant, shape, strides, rank)


def _with_contents(tensor: Tensor, address: int) -> Tensor:
    below, above = tensor.extent
    return replace(tensor, contents=ctypes.string_at(address - below, below + above), below=below)
