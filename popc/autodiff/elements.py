"""Captures of which every iteration of a loop reads one element: what Scan does with its inputs.

Adding up the gradient of such a capture would touch all of it in every iteration.  Each iteration
gives the gradient of its element instead, and the loop stacks them.
"""

from __future__ import annotations

from collections.abc import Mapping

from popc.autodiff.backward import Backward
from popc.autodiff.loop_parts import LoopParts
from popc.ir import Shape, Tensor, TensorType
from popc.ir.attributes import integer
from popc_runtime.ground.frozen import frozen

__all__ = ["Element", "elements_of", "joined_rows"]


@frozen
class Element:
    """The result of Gather(capture, start + step * iteration).

    Attributes:
        tensor: The result.
        operand: The number of the loop's operand that is the capture.
        axis: The dimension of the capture that is indexed.
        start: The index in iteration 0.
        step: 1 or -1.
    """

    tensor: Tensor
    operand: int
    axis: int
    start: int
    step: int

    def row_shape(self, source: TensorType) -> Shape:
        """The shape of one element."""
        return source.shape[: self.axis] + source.shape[self.axis + 1 :]


def elements_of(loop: LoopParts, captures: Mapping[Tensor, int]) -> list[Element]:
    """The elements that the body of ``loop`` reads of its inputs ``captures`` (-> operand).

    Every iteration reads another one, so that none has more than one gradient.
    """
    found: list[Element] = []
    if loop.conditional:
        return found
    for op in loop.body.topological():
        if op.op_type != "Gather" or op.operand(0) not in captures:
            continue
        source = op.operand(0)
        line = _line(op.operand(1), loop.body.inputs[0])
        if line is None or abs(line[1]) != 1:
            continue
        start, step = line
        axis = integer(op.attributes, "axis") % source.type.rank
        last = start + step * (loop.trip_count - 1)
        if min(start, last) >= 0 and max(start, last) < source.type.shape[axis]:
            found.append(Element(op.output, captures[source], axis, start, step))
    return found


def _line(index: Tensor, iteration: Tensor) -> tuple[int, int] | None:
    """(start, step) if ``index`` is start + step * iteration."""
    if index.type.size != 1:
        return None
    if index is iteration:
        return 0, 1
    if index.data is not None:
        return int(index.data.reshape(-1)[0]), 0
    op = index.producer
    if op is None or op.op_type not in {"Add", "Sub", "Cast", "Reshape"}:
        return None
    lines = [_line(tensor, iteration) for tensor in op.present_inputs]
    first, second = lines[0], lines[-1]
    if first is None or second is None or op.op_type in {"Cast", "Reshape"}:
        return first
    sign = 1 if op.op_type == "Add" else -1
    return first[0] + sign * second[0], first[1] + sign * second[1]


def joined_rows(b: Backward, element: Element, rows: Tensor, type_: TensorType) -> Tensor:
    """The gradient of a capture of type ``type_`` from those of its elements.

    ``rows``: the gradient of one element after the other, that of the last iteration first.
    """
    count, axis = rows.type.shape[0], element.axis
    if element.step > 0:
        rows = b.part(rows, 0, range(count)[::-1])
    order = list(range(1, rows.type.rank))
    order.insert(axis, 0)
    begins, ends = [0] * type_.rank, [0] * type_.rank
    begins[axis] = min(element.start, element.start + element.step * (count - 1))
    ends[axis] = type_.shape[axis] - count - begins[axis]
    return b.pad(b.transpose(rows, order), begins, ends)
