"""The optimizers of ai.onnx.preview.training, as elementwise ops on each tensor.

Inputs are the learning rate R, the number of earlier updates T, then for n tensors: the n tensors
X, their gradients G and the optimizer's state (each n long); the results are the new tensors and
the new state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from popc.frontend.node import ImportRule, Node
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

_DOMAIN: Final = "ai.onnx.preview.training"

# (node, rate, tensor, regularised gradient, state...) -> new tensor and new state
_Update: TypeAlias = "Callable[..., tuple[Tensor, ...]]"


def _scaled(node: Node, factor: float, tensor: Tensor) -> Tensor:
    return node.emit("Mul", [tensor, node.constant(factor, tensor.type.dtype)])


def _plus(node: Node, tensor: Tensor, value: float) -> Tensor:
    return node.emit("Add", [tensor, node.constant(value, tensor.type.dtype)])


def _mixed(node: Node, keep: float, old: Tensor, add: float, new: Tensor) -> Tensor:
    """The sum keep * old + add * new."""
    return node.emit("Add", [_scaled(node, keep, old), _scaled(node, add, new)])


def _like(node: Node, tensor: Tensor, other: Tensor) -> Tensor:
    """``tensor`` as a scalar of the element type of ``other``."""
    if tensor.type.rank:
        tensor = node.emit("Reshape", [tensor], {"shape": ()})
    if tensor.type.dtype is other.type.dtype:
        return tensor
    return node.emit("Cast", [tensor], {"to": other.type.dtype.value})


def _for_each(rate_rule: Callable[[Node], Tensor], update: _Update, states: int) -> ImportRule:
    """Apply ``update`` to each tensor with its gradient and its ``states`` state tensors."""

    def rule(node: Node) -> list[Tensor]:
        count, rest = divmod(len(node.inputs) - 2, 2 + states)
        if count < 1 or rest:
            raise ModelError(
                f"{len(node.inputs)} inputs are not a rate, a count and {2 + states} per tensor"
            )
        rate = rate_rule(node)
        results = []
        for index in range(count):
            positions = range(2 + index, len(node.inputs), count)
            x, gradient, *state = (node.input(position) for position in positions)
            decay = _scaled(node, node.number("norm_coefficient"), x)
            gradient = node.emit("Add", [decay, gradient])
            results.append(update(node, _like(node, rate, x), x, gradient, *state))
        return [result[part] for part in range(1 + states) for result in results]

    return rule


def _step(node: Node, x: Tensor, rate: Tensor, direction: Tensor) -> Tensor:
    return node.emit("Sub", [x, node.emit("Mul", [rate, direction])])


def _adagrad_rate(node: Node) -> Tensor:
    """R / (1 + T * decay_factor)."""
    rate = node.input(0)
    age = _scaled(node, node.number("decay_factor"), _like(node, node.input(1), rate))
    return node.emit("Div", [rate, _plus(node, age, 1.0)])


def _adagrad(
    node: Node, rate: Tensor, x: Tensor, gradient: Tensor, squares: Tensor
) -> tuple[Tensor, ...]:
    squares = node.emit("Add", [squares, node.emit("Mul", [gradient, gradient])])
    size = _plus(node, node.emit("Sqrt", [squares]), node.number("epsilon"))
    return _step(node, x, rate, node.emit("Div", [gradient, size])), squares


def _adam_rate(node: Node) -> Tensor:
    """R sqrt(1 - beta^T) / (1 - alpha^T), or R before the first update."""
    rate, count = node.input(0), _like(node, node.input(1), node.input(0))
    shares = []
    for name in ("alpha", "beta"):
        power = node.emit("Pow", [node.constant(node.number(name), rate.type.dtype), count])
        shares.append(node.emit("Sub", [node.constant(1.0, rate.type.dtype), power]))
    scale = node.emit("Div", [node.emit("Sqrt", [shares[1]]), shares[0]])
    started = node.emit("Greater", [count, node.constant(0.0, rate.type.dtype)])
    return node.emit("Where", [started, node.emit("Mul", [rate, scale]), rate])


def _adam(
    node: Node, rate: Tensor, x: Tensor, gradient: Tensor, mean: Tensor, squares: Tensor
) -> tuple[Tensor, ...]:
    alpha, beta = node.number("alpha"), node.number("beta")
    mean = _mixed(node, alpha, mean, 1 - alpha, gradient)
    squares = _mixed(node, beta, squares, 1 - beta, node.emit("Mul", [gradient, gradient]))
    size = _plus(node, node.emit("Sqrt", [squares]), node.number("epsilon"))
    stepped = _step(node, x, rate, node.emit("Div", [mean, size]))
    after = node.number("norm_coefficient_post")
    return _scaled(node, 1 - after, stepped) if after else stepped, mean, squares


def _momentum(
    node: Node, rate: Tensor, x: Tensor, gradient: Tensor, velocity: Tensor
) -> tuple[Tensor, ...]:
    """``beta`` damps the gradient from the second update on; "nesterov" looks one step ahead."""
    alpha, mode = node.number("alpha"), node.text("mode")
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"attribute 'mode' is {mode!r}, expected standard or nesterov")
    count = _like(node, node.input(1), x)
    started = node.emit("Greater", [count, node.constant(0.0, x.type.dtype)])
    first, later = (node.constant(value, x.type.dtype) for value in (1.0, node.number("beta")))
    share = node.emit("Where", [started, later, first])
    damped = node.emit("Mul", [share, gradient])
    velocity = node.emit("Add", [_scaled(node, alpha, velocity), damped])
    if mode == "standard":
        return _step(node, x, rate, velocity), velocity
    ahead = node.emit("Add", [gradient, _scaled(node, alpha, velocity)])
    return _step(node, x, rate, ahead), velocity


def _rate(node: Node) -> Tensor:
    return node.input(0)


RULES: Final[dict[tuple[str, str], ImportRule]] = {
    (_DOMAIN, "Adagrad"): _for_each(_adagrad_rate, _adagrad, 1),
    (_DOMAIN, "Adam"): _for_each(_adam_rate, _adam, 2),
    (_DOMAIN, "Momentum"): _for_each(_rate, _momentum, 1),
}
