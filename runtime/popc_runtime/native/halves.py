"""float16 and bfloat16 as storage: kernels of float32 between conversions.

That is how numpy computes them: see `preparation` and `blocking` of its kernels.  Conversions are
records of the same instruction; constants are converted once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final, TypeAlias
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import tensors
from popc_runtime.native.forms import map_record, stays_half
from popc_runtime.native.now import run_now
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.reductions import extreme_of_halves
from popc_runtime.native.views import View, as_view, broadcast_to, empty

__all__ = ["MOVES", "ROUNDING", "through_float32"]

_Room: TypeAlias = "Callable[[NativeBinding, View], View]"  # float32 memory for halves

ROUNDING: Final = "Round_narrow"  # the kernel that rounds what another has computed

# What numpy computes in float32 and rounds once, whichever half operands are.
_ROUNDED_ONCE: Final = frozenset(
    {
        "AccumulateMoment",
        "AdaDeltaUpdater",
        "AdamUpdater",
        "AdamVarUpdate",
        "ArgMax",
        "ArgMin",
        "Attention",
        "AttentionGrad",
        "AveragePool",
        "AveragePoolGrad",
        "BatchNormalization",
        "BatchNormalizationGrad",
        "BatchNormalizationTraining",
        "BinCount",
        "Bucketize",
        "CeluGrad",
        "ClipGrad",
        "Conv",
        "ConvTranspose",
        "ConvWeightsGrad",
        "CumProd",
        "CumSum",
        "DFT",
        "DeformConv",
        "DequantizeLinear",
        "Det",
        "EluGrad",
        "ErfGrad",
        "ExpertMatMul",
        "ExpertMatMulNBits",
        "FakeQuantizeGrad",
        "GRU",
        "GatherGrad",
        "GeluGrad",
        "Gemm",
        "GridSample",
        "GroupNormalization",
        "GroupNormalizationGrad",
        "HardSigmoidGrad",
        "HardSwishGrad",
        "Hardmax",
        "Histogram",
        "InstanceNormalization",
        "InstanceNormalizationGrad",
        "Inverse",
        "LRN",
        "LSTM",
        "LambSquare",
        "LambVarUpdate",
        "LayerNormalization",
        "LayerNormalizationGrad",
        "LeakyReluGrad",
        "LogSoftmax",
        "LogSoftmaxGrad",
        "LpPool",
        "MatMul",
        "MatMulNBits",
        "MaxPool",
        "MaxPoolGrad",
        "MaxRoiPool",
        "MishGrad",
        "QuantizeLinear",
        "RMSNormalization",
        "RMSNormalizationGrad",
        "RMSPropUpdater",
        "RNN",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "ReluGrad",
        "RoiAlign",
        "RotaryEmbedding",
        "SGD0VarUpdate",
        "SGD1AcclUpdate",
        "SGD1VarUpdate",
        "SGD2AcclUpdate",
        "SGDNesterovVarUpdate",
        "STFT",
        "ScaledGradient",
        "ScaledVarUpdate",
        "SeluGrad",
        "ShrinkGrad",
        "SigmoidGrad",
        "Softmax",
        "SoftmaxCrossEntropyLoss",
        "SoftmaxCrossEntropyLossGrad",
        "SoftmaxGrad",
        "SoftplusGrad",
        "SoftsignGrad",
        "Sum",
        "SwishGrad",
        "TanhGrad",
        "ThresholdedReluGrad",
        "TopK",
    }
)
# What moves elements, or rounds after each of its steps, has kernels for all types; numpy sees
# bfloat16 in everything else as float32.
MOVES: Final = frozenset(
    {
        "BitCast",
        "Boundary",
        "Concat",
        "Copy",
        "Detach",
        "DynamicSlice",
        "DynamicUpdate",
        "DynamicZero",
        "Expand",
        "FusedElementwise",
        "Gather",
        "GatherElements",
        "GatherND",
        "IoTileCopy",
        "IpuCopy",
        "OneHot",
        "Pad",
        "RemoteGather",
        "RemoteLoad",
        "RemoteStore",
        "Reshape",
        "Restore",
        "ReverseSequence",
        "SequenceSlice",
        "Slice",
        "Split",
        "StackStore",
        "Stash",
        "Tile",
        "Transpose",
        "Trilu",
        "Where",
    }
)


_PRODUCTS: Final = frozenset({"Gemm", "MatMul"})

# What is too large: the order is known to csrc/kernels/elementwise/rounding.c.
_OVERFLOWS: Final = ("infinity", "nan", "largest")
_ROUNDING: Final = ("rounding", "overflow")  # attributes


def through_float32(
    opcode: str, encoder: Encoder, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    """The record of an instruction whose halves are float32 while it runs.

    ``None`` if there are none, if numpy rounds otherwise, or if there is no kernel for float32.
    """
    dtypes = {*binding.input_dtypes, *binding.output_dtypes}
    halves = dtypes & {DType.BFLOAT16, DType.FLOAT16}
    once = halves == {DType.BFLOAT16} and opcode not in MOVES
    rounding = Rounding.of(binding.attributes)
    known = opcode not in MOVES if rounding else once or opcode in _ROUNDED_ONCE
    if not halves or not known or rounding.overflow not in _OVERFLOWS:
        return None
    operands = (*binding.inputs, *binding.outputs)
    if any(
        operand is not None and (operand.size == 0 or operand.ndim > MAX_RANK)
        for operand in operands
    ):
        return None
    extreme = extreme_of_halves(opcode, binding)
    if extreme is not None:
        return extreme
    factor = opcode in _PRODUCTS and stays_half(binding, 1)
    mark = binding.scratch.mark()
    for room in (_room_in_order, _plain_room):
        binding.scratch.rewind(mark)
        record = _between_conversions(
            encoder, binding, numbers, rounding, 1 if factor else -1, room
        )
        if record is not None:
            return record
    return None


def _between_conversions(
    encoder: Encoder,
    binding: NativeBinding,
    numbers: Mapping[str, int],
    rounding: Rounding,
    unchanged: int,
    room: _Room,
) -> Record | None:
    """All operands but the one of index ``unchanged`` are converted."""
    inputs, before = _widened_inputs(binding, unchanged, room)
    outputs = list(binding.outputs)
    after: list[Record] = []
    for index, (array, dtype) in enumerate(zip(outputs, binding.output_dtypes, strict=True)):
        if array is None or dtype is None or not _is_half(dtype):
            continue
        outputs[index] = wide = room(binding, array)
        if rounding:
            after.append(_rounded(wide, dtype, binding, rounding))
        after.append(_converted(array, dtype, wide, DType.FLOAT32))
    attributes = {
        name: value for name, value in binding.attributes.items() if name not in _ROUNDING
    }
    inner = replace(
        binding,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_dtypes=tuple(
            dtype if index == unchanged else _wide(dtype)
            for index, dtype in enumerate(binding.input_dtypes)
        ),
        output_dtypes=tuple(_wide(dtype) for dtype in binding.output_dtypes),
        attributes=attributes,
    )
    record = encoder(inner, numbers)
    if record is None:
        return None
    arrays = tuple(view for view in (*inputs, *outputs) if view is not None)
    return replace(
        record,
        before=(*before, *record.before),
        after=(*record.after, *after),
        keeps_alive=(*record.keeps_alive, *arrays),
    )


def _widened_inputs(
    binding: NativeBinding, unchanged: int, room: _Room
) -> tuple[list[View | None], list[Record]]:
    """Operands in float32, and what makes them so; constants are converted now."""
    inputs = list(binding.inputs)
    before: list[Record] = []
    for index, (array, dtype) in enumerate(zip(inputs, binding.input_dtypes, strict=True)):
        if array is None or dtype is None or not _is_half(dtype) or index == unchanged:
            continue
        if binding.is_constant(index):
            inputs[index] = wide = empty(array.shape, DType.FLOAT32)
            run_now(_converted(wide, DType.FLOAT32, array, dtype))
            continue
        inputs[index] = wide = room(binding, array)
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in wide.strides)
        before.append(_converted(wide[once], DType.FLOAT32, array[once], dtype))
    return inputs, before


def _plain_room(binding: NativeBinding, halves: View) -> View:
    """Contiguous memory for as many floats."""
    return binding.scratch.take(halves.shape, DType.FLOAT32)


def _room_in_order(binding: NativeBinding, halves: View) -> View:
    """Memory for as many floats, in the order of the halves; repeated ones are there once.

    Conversions are loops over neighbours then, and kernels that know several orders of memory,
    such as convolutions that of channels-last images, get the order that the compiler has chosen.
    """
    shape = tuple(
        1 if step == 0 else dim for dim, step in zip(halves.shape, halves.strides, strict=True)
    )
    order = sorted(range(halves.ndim), key=lambda axis: -abs(halves.strides[axis]))
    room = binding.scratch.take(tuple(shape[axis] for axis in order), DType.FLOAT32)
    back = sorted(range(halves.ndim), key=order.__getitem__)
    return broadcast_to(room.transpose(*back), halves.shape)


def _rounded(wide: View, dtype: DType, binding: NativeBinding, rounding: Rounding) -> Record:
    """Rounds to numbers of ``dtype``, so that the conversion has nothing left to round."""
    source = as_view(binding.random.rounding_source) if rounding.stochastic else None
    overflow = _OVERFLOWS.index(rounding.overflow)
    address = 0 if source is None else source.address
    words = (address, *tensors(wide), int(dtype is DType.BFLOAT16), overflow)
    return Record(ROUNDING, words, (wide, source))


def _converted(to: View, to_dtype: DType, source: View, dtype: DType) -> Record:
    return map_record("Copy_f32", to, [source], (), (to_dtype, dtype))


def _is_half(dtype: DType) -> bool:
    return dtype in (DType.FLOAT16, DType.BFLOAT16)


def _wide(dtype: DType | None) -> DType | None:
    return DType.FLOAT32 if dtype is not None and _is_half(dtype) else dtype
