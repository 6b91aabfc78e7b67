"""Cut products of matrices into smaller ones, where the user wants that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import ClassVar, Final

from popc.ir import AttributeMap, Graph, Op, ProductCut, Tensor
from popc.ops.build import build
from popc.ops.partials import PARTIALS
from popc.transforms.serialization import SerializationPass, parts_of, too_few_parts
from popc_runtime.format import DType
from popc_runtime.ground.frozen import inheritable

__all__ = ["SerializeProducts"]

_PRODUCTS: Final = ("Gemm", "MatMul")


@inheritable
class SerializeProducts(SerializationPass):
    """A product whose settings say so becomes several that run one after the other.

    Each needs a part of the temporary memory.  Gradients are made of the parts, so that the
    products of the backward pass are cut as well: where rows or columns of the result are cut,
    those of the gradients are; what is not cut gets the sum over the parts.

    Before::

        %y: float32[8,6] = MatMul(%x, @w)           output_channels, factor 2

    After::

        %w1, %w2 = Split(@w) axis=1 split=[3, 3]
        %y1 = MatMul(%x, %w1)
        %y2 = MatMul(%x, %w2)
        %y = Concat(%y1, %y2) axis=1

    With reducing_dim, the parts are added up instead.

    Raises:
        OptionError: lists all products that cannot be cut as their annotations say.
    """

    name: ClassVar[str] = "serialize_products"
    rewrites: ClassVar[frozenset[str]] = frozenset(_PRODUCTS)
    refusal: ClassVar[str] = "products cannot be cut as serialize_matmul_factor says"

    def problem(self, op: Op) -> str:
        """See `SerializationPass`."""
        return "" if op.settings.cut is None else _problem(op, op.settings.cut)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Cut one product."""
        cut = op.settings.cut
        if cut is None or op.op_type not in _PRODUCTS:
            return False
        graph.replace_op(op, [_Cutter(graph, op, cut).result()])
        return True


def _axes(op: Op) -> tuple[tuple[int, int], tuple[int, int]]:
    """Counted from the end: rows and depth of the first operand, depth and columns of the other."""
    turned = [bool(op.attributes.get(key, 0)) for key in ("transA", "transB")]
    first, second = ((-1, -2) if is_turned else (-2, -1) for is_turned in turned)
    return first, second


def _problem(op: Op, cut: ProductCut) -> str:
    """The reason why ``op`` cannot be cut so; "" if it can."""
    if op.op_type not in _PRODUCTS:
        return ""
    name = op.settings.origin or repr(op)
    a, b = op.operand(0).type.shape, op.operand(1).type.shape
    if len(a) < 2 or len(b) < 2:
        return f"{name}: a product with a vector is not cut"
    (rows, depth), (_, columns) = _axes(op)
    sizes = {
        "input_channels": a[rows],
        "reducing_dim": a[depth],
        "output_channels": b[columns],
    }
    size = sizes[cut.mode]
    if parts_of(size, cut.factor) is not None:
        return ""
    return f"{name}: of what {cut.mode} cuts, {too_few_parts(size, cut.factor)}"


class _Cutter:
    """Builds the parts of one product, and what puts them together."""

    def __init__(self, graph: Graph, op: Op, cut: ProductCut) -> None:
        self._graph = graph
        self._op = op
        self._cut = cut
        self._settings = replace(op.settings, cut=None)
        narrow = op.output.type.dtype in (DType.FLOAT16, DType.BFLOAT16)
        self._wide = cut.keep_precision and narrow

    def result(self) -> Tensor:
        """The result of the product.

        To keep precision parts are cast, and what all parts share is cast once: then sums over
        parts, of the product or of the gradient of what they share, are of float32.
        """
        (rows, left_depth), (right_depth, columns) = _axes(self._op)
        a, b, c = self._op.operand(0), self._op.operand(1), self._op.optional(2)
        match self._cut.mode:
            case "input_channels":
                parts = zip(
                    self._parts(a, rows),
                    repeat(self._widened(b)),
                    self._offsets(c, -2),
                    strict=False,
                )
                return self._joined([self._product(*part) for part in parts], -2)
            case "output_channels":
                parts = zip(
                    repeat(self._widened(a)),
                    self._parts(b, columns),
                    self._offsets(c, -1),
                    strict=False,
                )
                return self._joined([self._product(*part) for part in parts], -1)
            case _:
                wide = None if c is None else self._widened(c)
                return self._summed(self._parts(a, left_depth), self._parts(b, right_depth), wide)

    def _parts(self, tensor: Tensor, axis: int) -> Sequence[Tensor]:
        split = parts_of(tensor.type.shape[axis], self._cut.factor)
        assert split is not None, "checked before"
        attributes: AttributeMap = {"axis": tensor.type.rank + axis, "split": split}
        parts = build(self._graph, "Split", [tensor], attributes, settings=self._settings).outputs
        return [self._widened(part) for part in parts]

    def _widened(self, tensor: Tensor) -> Tensor:
        return self._emit("Cast", [tensor], to=DType.FLOAT32.value) if self._wide else tensor

    def _narrowed(self, tensor: Tensor) -> Tensor:
        kept = self._op.output.type.dtype
        return self._emit("Cast", [tensor], to=kept.value) if self._wide else tensor

    def _offsets(self, offset: Tensor | None, axis: int) -> Sequence[Tensor | None]:
        """The operand C of a Gemm for each part; it is cut unless it is repeated along ``axis``."""
        if offset is None:
            return [None] * self._cut.factor
        if offset.type.rank < -axis or offset.type.shape[axis] == 1:
            return [self._widened(offset)] * self._cut.factor
        return self._parts(offset, axis)

    def _product(self, a: Tensor, b: Tensor, offset: Tensor | None) -> Tensor:
        attributes = dict(self._op.attributes)
        if self._wide:
            attributes.pop(PARTIALS, None)
        operands = [a, b] if offset is None else [a, b, offset]
        return build(
            self._graph, self._op.op_type, operands, attributes, settings=self._settings
        ).output

    def _joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        narrow = [self._narrowed(part) for part in parts]
        return self._emit("Concat", narrow, axis=narrow[0].type.rank + axis)

    def _summed(
        self, left: Sequence[Tensor], right: Sequence[Tensor], offset: Tensor | None
    ) -> Tensor:
        """Added up one after the other, so that no more than two parts live at a time."""
        total = self._product(left[0], right[0], offset)
        for a, b in zip(left[1:], right[1:], strict=True):
            total = self._emit("Add", [total, self._product(a, b, None)])
        return self._narrowed(total)

    def _emit(self, op_type: str, inputs: Sequence[Tensor], **attributes: int | str) -> Tensor:
        return build(self._graph, op_type, inputs, {**attributes}, settings=self._settings).output
