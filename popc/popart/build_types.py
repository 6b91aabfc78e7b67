"""Types that PopART's builder tells where popc's importer and ONNX know none, or others.

The builder is more generous than the importer: it tells a type although operands do not fit yet,
which is an error when a session is made and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx

from popc.frontend import InferredType, find_attribute

__all__ = ["reported_type", "supposed_types"]

_Types = Sequence[InferredType | None]
_DOMAIN: Final = "ai.graphcore"


def supposed_types(node: onnx.NodeProto, inputs: _Types) -> list[InferredType | None]:
    """Types of the results of a node that the importer refuses, by those of its inputs."""
    rule = _SUPPOSED.get(node.op_type) if node.domain == _DOMAIN else None
    if rule is None or any(type_ is None for type_ in inputs):
        return [None] * len(node.output)
    found: list[InferredType | None] = list(
        rule(node, [input_ for input_ in inputs if input_ is not None])
    )
    return (found + [None] * len(node.output))[: len(node.output)]


def _is_reduced(node: onnx.NodeProto) -> bool:
    reduction = find_attribute(node, "reduction")
    return reduction is None or reduction.s not in (b"None", b"NoReduction")


def _loss(unreduced: Callable[[Sequence[InferredType]], tuple[int, ...]]) -> Any:
    """A scalar, or what a sample each gives."""

    def rule(node: onnx.NodeProto, inputs: Sequence[InferredType]) -> list[InferredType]:
        shape = () if _is_reduced(node) else unreduced(inputs)
        return [InferredType(inputs[0].element, shape)]

    return rule


def _as_input(index: int) -> Any:
    """A rule for results that have the type of an input."""

    def rule(node: onnx.NodeProto, inputs: Sequence[InferredType]) -> list[InferredType]:
        del node
        return [inputs[index]]

    return rule


# By operator: types of the results from those of the inputs.
_SUPPOSED: Final[Mapping[str, Any]] = {
    "CopyVarUpdate": _as_input(0),
    "Ctc": _loss(lambda inputs: inputs[0].shape[1:2]),
    "Detach": _as_input(0),
    "DynamicAdd": _as_input(0),
    "DynamicUpdate": _as_input(0),
    "DynamicZero": _as_input(0),
    "Gelu": _as_input(0),
    "GeluErf": _as_input(0),
    "IdentityLoss": _loss(lambda inputs: inputs[0].shape),
    "L1": _loss(lambda inputs: inputs[0].shape),
    "Nll": _loss(lambda inputs: inputs[1].shape),
    "Nop": _as_input(0),
    "PrintTensor": _as_input(0),
    "Round": _as_input(0),
    "Scale": _as_input(0),
    "Swish": _as_input(0),
}


def reported_type(
    node: onnx.NodeProto, input_type: InferredType | None, type_: InferredType | None
) -> InferredType | None:
    """The builder's own type of a result, where it differs from the inferred one.

    It rounds the sizes of Subsample down although the operator keeps the last elements too.
    """
    strides = find_attribute(node, "strides")
    is_subsample = (node.domain, node.op_type) == (_DOMAIN, "Subsample")
    if not is_subsample or strides is None or input_type is None or type_ is None:
        return type_
    sizes = zip(input_type.shape, strides.ints, strict=True)
    return InferredType(type_.element, tuple(max(1, size // stride) for size, stride in sizes))
