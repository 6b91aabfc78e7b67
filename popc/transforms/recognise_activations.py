"""Find activation functions that exporters have written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import pi, sqrt
from typing import ClassVar, Final, TypeAlias

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build
from popc.ops.constants import scalar_value
from popc.transforms.base import RewritePass
from popc.transforms.match import is_scalar, produced_by
from popc_runtime.ground.frozen import frozen

__all__ = ["RecogniseActivations"]

_Match: TypeAlias = "tuple[str, Tensor, AttributeMap]"  # op type, operand, attributes


@frozen
class RecogniseActivations(RewritePass):
    """HardSigmoid, HardSwish, Swish and Gelu (with erf) from their formulas.

    Before::

        %a = Div(%x, float32(1.41421))
        %b = Erf(%a)
        %c = Add(%b, float32(1.0))
        %d = Mul(%x, %c)
        %y = Mul(%d, float32(0.5))

    After::

        %y = Gelu(%x) approximate='none'
    """

    name: ClassVar[str] = "recognise_activations"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Div", "Mul"})  # the last op of every formula

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace the last op of a formula; `DeadCode` removes the rest."""
        makers = [tensor.producer for tensor in op.inputs if tensor is not None]
        if all(maker is None or maker.op_type not in _BEFORE for maker in makers):
            return False
        for rule in _RULES:
            match = rule(op)
            if match is None:
                continue
            op_type, x, attributes = match
            if x.type != op.output.type or not x.type.dtype.is_float:
                continue
            new = build(graph, op_type, [x], attributes, settings=op.settings)
            graph.replace_op(op, new.outputs)
            return True
        return False


def _factors(tensor: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Both ways to see ``tensor`` as a product."""
    op = produced_by(tensor, "Mul")
    if op is not None:
        yield op.operand(0), op.operand(1)
        yield op.operand(1), op.operand(0)


def _terms(tensor: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Both ways to see ``tensor`` as a sum."""
    op = produced_by(tensor, "Add")
    if op is not None:
        yield op.operand(0), op.operand(1)
        yield op.operand(1), op.operand(0)


def _scaled(tensor: Tensor | None, factor: float) -> Tensor | None:
    """``t`` if ``tensor`` is t * factor or t / (1 / factor)."""
    for value, scale in _factors(tensor):
        if is_scalar(scale, factor):
            return value
    op = produced_by(tensor, "Div")
    return op.operand(0) if op is not None and is_scalar(op.operand(1), 1 / factor) else None


def _hard_sigmoid(op: Op) -> _Match | None:
    """clip(x + 3, 0, 6) / 6."""
    clipped = _scaled(op.output, 1 / 6)
    x = _relu6_of_sum(clipped)
    return None if x is None else ("HardSigmoid", x, {"alpha": 1 / 6, "beta": 0.5})


def _relu6_of_sum(tensor: Tensor | None) -> Tensor | None:
    """``x`` if ``tensor`` is clip(x + 3, 0, 6)."""
    clip = produced_by(tensor, "Clip")
    if clip is None or (clip.attributes.get("min"), clip.attributes.get("max")) != (0, 6):
        return None
    for x, three in _terms(clip.operand(0)):
        if is_scalar(three, 3):
            return x
    return None


def _hard_swish(op: Op) -> _Match | None:
    """x * hard_sigmoid(x), or x * clip(x + 3, 0, 6) / 6 in either order."""
    for x, gate in _factors(op.output):
        sigmoid = produced_by(gate, "HardSigmoid")
        if sigmoid is not None and sigmoid.operand(0) is x and _is_sixth(sigmoid):
            return "HardSwish", x, {}
    for x, clipped in _factors(_scaled(op.output, 1 / 6)):
        if _relu6_of_sum(clipped) is x:
            return "HardSwish", x, {}
    return None


def _is_sixth(op: Op) -> bool:
    alpha, beta = op.attributes.get("alpha"), op.attributes.get("beta")
    return isinstance(alpha, float) and abs(alpha - 1 / 6) < 1e-6 and beta == 0.5


def _swish(op: Op) -> _Match | None:
    """x * sigmoid(x)."""
    for x, gate in _factors(op.output):
        sigmoid = produced_by(gate, "Sigmoid")
        if sigmoid is not None and sigmoid.operand(0) is x:
            return "Swish", x, {"alpha": 1.0}
    return None


def _gelu(op: Op) -> _Match | None:
    """0.5 * x * (1 + erf(x / sqrt(2))), however the three factors are grouped; or with tanh."""
    for left, right in _factors(op.output):
        for x, gate in (
            *((inner, right) for inner in (_scaled(left, 0.5),) if inner is not None),
            *(pair for pair in _factors(left) if is_scalar(right, 0.5)),
            *((left, inner) for inner in (_scaled(right, 0.5),) if inner is not None),
        ):
            if _erf_argument(gate) is x:
                return "Gelu", x, {"approximate": "none"}
            if _tanh_argument(gate) is x:
                return "Gelu", x, {"approximate": "tanh"}
    return None


def _erf_argument(gate: Tensor) -> Tensor | None:
    """``x`` if ``gate`` is 1 + erf(x / sqrt(2))."""
    for erf, unit in _terms(gate):
        found = produced_by(erf, "Erf")
        if found is not None and scalar_value(unit) == 1:
            return _scaled(found.operand(0), 1 / sqrt(2))
    return None


def _tanh_argument(gate: Tensor) -> Tensor | None:
    """``x`` if ``gate`` is 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))."""
    for tanh, unit in _terms(gate):
        found = produced_by(tanh, "Tanh")
        inner = None if found is None else _scaled(found.operand(0), sqrt(2 / pi))
        if inner is None or scalar_value(unit) != 1:
            continue
        for x, cubic in _terms(inner):
            if _is_cubic_term(cubic, x):
                return x
    return None


def _is_cubic_term(tensor: Tensor, x: Tensor) -> bool:
    """True if ``tensor`` is 0.044715 * x^3, with a power or as a product in any order."""
    power = produced_by(_scaled(tensor, 0.044715), "Pow")
    if power is not None:
        return power.operand(0) is x and is_scalar(power.operand(1), 3)
    factors = _all_factors(tensor, x)
    others = [factor for factor in factors if factor is not x]
    return len(factors) == 4 and len(others) == 1 and is_scalar(others[0], 0.044715)


def _all_factors(tensor: Tensor, x: Tensor) -> list[Tensor]:
    """The factors of a nest of products; ``x`` is not looked into."""
    op = None if tensor is x else produced_by(tensor, "Mul")
    if op is None:
        return [tensor]
    return [*_all_factors(op.operand(0), x), *_all_factors(op.operand(1), x)]


# What one of the operands of a formula's last op comes from.
_BEFORE: Final = frozenset({"Add", "Clip", "Div", "HardSigmoid", "Mul", "Sigmoid"})
_RULES: Final[tuple[Callable[[Op], _Match | None], ...]] = (
    _hard_swish,
    _hard_sigmoid,
    _swish,
    _gelu,
)
