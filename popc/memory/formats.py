"""Memory formats: which results lie in memory pixel by pixel rather than plane by plane.

A memory format is nothing but strides.  Shapes stay [N, C, H, W]; *channels-last* means that all
channels of a pixel lie side by side.  A convolution then reads and writes rows of channels, and
needs no copies that bring them together.  Images may be lines [N, C, W], or volumes.

A result is channels-last if all of this holds:

* it is an image of at least `_FEWEST_CHANNELS` channels that a single-result op of the top graph
  computes, whose kernel writes any format (`OpSpec.strided_output`), and no output of the graph;
* every reader is an op without nested graphs that reads strided operands, or reduces all pixels
  of a channel to one number;
* it is the result of a convolution at which the format may begin (it always may at those of
  bytes), but not of few channels, or groups of few, that are not computed row by row, or at least
  half of its operands of its size are channels-last (so that maps, pooling, resized and joined
  images stay in the format that they find), or the channels of such an image in another order;
* at least half of its readers gain: they write any format themselves (maps only if their results
  may be channels-last in turn, convolutions only if their channels fill vectors, or pixels of a row
  do not), reduce pixels, or turn the image to [N, H, W, C], or by way of [N, C, H W] to
  [N, H W, C], which then are views.  Others have to bring planes together.

None of this depends on the order in which ops run.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops import OPS
from popc.ops.views import contiguous_strides, normal_strides
from popc_runtime.native.algorithms import fits_rows, planes_win

__all__ = ["BYTE_CONVOLUTIONS", "CONVOLUTIONS", "choose_formats"]

_FEWEST_CHANNELS: Final = 8  # below, rows of channels are too short to be worked on at once
# Of a result, and of a group: a panel of weights has as many columns.  Convolutions of 8 to 15
# channels take 0.35 to 1.2 of the time plane by plane, in the mean 0.65.
_FEWEST_OF_GROUP: Final = 16
BYTE_CONVOLUTIONS: Final = ("ConvInteger",)
CONVOLUTIONS: Final = ("Conv", *BYTE_CONVOLUTIONS)
_PARTS: Final = ("Slice", "Split")  # views, which lie as what they are parts of
_IMAGES: Final = (3, 4, 5)  # ranks of images of one, two and three axes


def choose_formats(
    graph: Graph, convolutions: Collection[str] = CONVOLUTIONS
) -> dict[Tensor, tuple[int, ...]]:
    """The byte strides of all results that are channels-last.

    ``convolutions`` are the types of ops at which the format may begin.
    """
    found: dict[Tensor, tuple[int, ...]] = {}
    last = set[Tensor]()  # these, and their parts
    order = list(graph.topological())
    if not any(op.op_type in convolutions for op in order):
        return found
    suited = _suited(graph, order)
    for op in order:
        if op.op_type in _PARTS and op.operand(0) in last:
            last.update(op.outputs)
        if len(op.outputs) != 1 or op.output not in suited:
            continue
        strides = _channels_last(op.output)
        if strides is not None and _finds(op, last, convolutions):
            found[op.output] = strides
            last.add(op.output)
    return found


def _suited(graph: Graph, order: Sequence[Op]) -> set[Tensor]:
    """Results that may be channels-last as far as those who read them are concerned."""
    suited = set[Tensor]()
    for op in reversed(order):
        if len(op.outputs) != 1 or graph.is_output(op.output) or not _writes_any(op):
            continue
        if op.output.type.rank in _IMAGES and _suits_readers(graph, op.output, suited):
            suited.add(op.output)
    return suited


def _channels_last(image: Tensor) -> tuple[int, ...] | None:
    """Strides of [N, C, H, W] with channels side by side, unless it lies so anyway, or is none."""
    type_ = image.type
    if type_.rank not in _IMAGES or type_.size == 0 or type_.shape[1] < _FEWEST_CHANNELS:
        return None
    turned = type_.with_shape(tuple(type_.shape[axis] for axis in _to_channels_last(type_.rank)))
    batch, *axes, channel = contiguous_strides(turned)
    return normal_strides(type_, (batch, channel, *axes))


def _to_channels_last(rank: int) -> tuple[int, ...]:
    """The permutation from [N, C, H, W] to [N, H, W, C]."""
    return (0, *range(2, rank), 1)


def _writes_any(op: Op) -> bool:
    blocks = op.attributes.get("block_size", 0) != 0  # of numbers along an axis: no images
    return op.op_type in OPS and OPS[op.op_type].strided_output and not blocks


def _finds(op: Op, found: Container[Tensor], convolutions: Collection[str]) -> bool:
    """True if what ``op`` reads lets it write channels-last."""
    if op.op_type in CONVOLUTIONS:
        return op.op_type in convolutions and not _has_short_rows(op)
    if op.op_type == "Reshape":
        first = _before_shuffle(op)
        return first is not None and first.operand(0) in found and _shuffled(first) is op
    images = [
        operand
        for operand in op.present_inputs
        if not operand.is_constant and _is_as_large(operand, op)
    ]
    return bool(images) and 2 * sum(image in found for image in images) >= len(images)


def _is_as_large(operand: Tensor, op: Op) -> bool:
    """True if ``operand`` is an image with the images and channels of the result."""
    if OPS[op.op_type].elementwise:
        return operand.type.shape == op.output.type.shape
    return operand is op.operand(0) or op.op_type == "Concat"


def _suits_readers(graph: Graph, image: Tensor, suited: Container[Tensor]) -> bool:
    readers: list[Op] = []
    left = [image]
    while left:
        for op in left.pop().uses:
            if op.op_type not in _PARTS:
                readers.append(op)
                continue
            if any(graph.is_output(part) for part in op.outputs):
                return False
            left += op.outputs
    if any(op.subgraphs or not _reads_format(op) for op in readers):
        return False
    return 2 * sum(_gains(op, suited) for op in readers) >= len(readers)


def _reads_format(op: Op) -> bool:
    """True if the kernel of ``op`` reads images in any memory format as fast, or nearly."""
    return op.op_type in OPS and (OPS[op.op_type].strided_input or _reduces_pixels(op))


def _reduces_pixels(op: Op) -> bool:
    if not op.op_type.startswith("Reduce") or "axes" not in op.attributes:
        return False
    rank = op.operand(0).type.rank
    axes = sorted(axis % rank for axis in integers(op.attributes, "axes"))
    return rank in _IMAGES and axes == [*range(2, rank)]


def _shuffled(op: Op) -> Op | None:
    """The last of three ops, of which ``op`` is the first, that change the order of channels.

    A Reshape to [N, groups, C / groups, H, W], a Transpose of groups, and a Reshape back.
    """
    if op.op_type != "Reshape":
        return None
    image, turn = op.operand(0), _only_reader(op)
    last = None if turn is None or turn.op_type != "Transpose" else _only_reader(turn)
    if turn is None or last is None or last.op_type != "Reshape":
        return None
    batch, *parts = op.output.type.shape
    apart = len(parts) == 4 and (batch, *parts[2:]) == (image.type.shape[0], *image.type.shape[2:])
    swaps = apart and turn.attributes["perm"] == (0, 2, 1, 3, 4)
    return last if swaps and last.output.type == image.type else None


def _only_reader(op: Op) -> Op | None:
    readers = list(op.output.uses)
    return readers[0] if len(readers) == 1 else None


def _before_shuffle(op: Op) -> Op | None:
    """The first of three ops of which ``op`` may be the last."""
    turn = op.operand(0).producer
    first = turn.operand(0).producer if turn is not None and turn.op_type == "Transpose" else None
    return first if first is not None and first.op_type == "Reshape" else None


def _gains(op: Op, suited: Container[Tensor]) -> bool:
    """True if ``op`` takes less time where its operand is channels-last.

    Maps do if their results are, too: a turn takes longer than they do.
    """
    if op.op_type == "Reshape":
        return _shuffled(op) is not None or _lists_pixels(op)
    if _writes_any(op):
        if OPS[op.op_type].elementwise:
            return op.output in suited
        return not _has_short_rows(op) and not _fills_planes(op)
    permutation = op.attributes["perm"] if op.op_type == "Transpose" else ()
    rank = op.operand(0).type.rank
    to_last = rank in _IMAGES and permutation == _to_channels_last(rank)
    return to_last or _reduces_pixels(op)


def _lists_pixels(op: Op) -> bool:
    """True if a Reshape to [N, C, pixels], and the Transpose behind it, give rows of channels."""
    turn, shape = _only_reader(op), op.operand(0).type.shape
    rows = len(shape) > 3 and op.output.type.shape[:-1] == shape[:2]
    return rows and turn is not None and turn.attributes.get("perm") == (0, 2, 1)


def _has_short_rows(op: Op) -> bool:
    """True if ``op`` is a convolution of few channels, or of groups of few, but not of single ones.

    It fills a part of a vector, or reads and writes a part of each row of channels at a time, if it
    is not one that the runtime computes row by row.  Lines and volumes of single channels take
    longer there, too.
    """
    if op.op_type not in CONVOLUTIONS:
        return False
    group = op.attributes.get("group", 1)
    assert isinstance(group, int), f"{op!r}: group={group!r}"
    widths = (op.operand(0).type.shape[1], op.output.type.shape[1])
    if group == 1:
        return op.op_type not in BYTE_CONVOLUTIONS and widths[1] < _FEWEST_OF_GROUP
    if op.output.type.rank != 4:
        return min(widths) < _FEWEST_OF_GROUP * group
    few = widths != (group, group) and min(widths) < _FEWEST_OF_GROUP * group
    return few and not (widths[0] == widths[1] and _goes_by_rows(op))


def _fills_planes(op: Op) -> bool:
    """True if ``op`` is a convolution whose channels fill vectors worse than pixels of a row do."""
    if op.op_type != "Conv" or op.attributes.get("group", 1) != 1:
        return False
    steps = integers(op.attributes, "strides"), integers(op.attributes, "dilations")
    return planes_win(op.operand(1).type.shape, op.output.type.shape, *steps)


def _goes_by_rows(op: Op) -> bool:
    strides, dilations = integers(op.attributes, "strides"), integers(op.attributes, "dilations")
    shapes = op.operand(1).type.shape, op.output.type.shape
    return op.op_type == "Conv" and fits_rows(*shapes, strides, dilations)
