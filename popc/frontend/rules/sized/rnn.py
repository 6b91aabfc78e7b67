"""Recurrent layers over a number of steps, or of samples, that data decides.

Steps behind those that count are none: they are left out as those behind the end of a sample are,
also where a layer begins at the end.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from popc.frontend.rules.onnx.rnn import LAYER_ACTIVATIONS, is_batch_first, layer_results
from popc.frontend.rules.sized.attention import for_all
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.values import Value
from popc_runtime.format import DType

__all__ = ["RULES"]

_LENGTHS: Final = 4  # the operand that says how many steps of each sample count


def _recurrent(activations: tuple[str, ...], node: SizedNode) -> list[Value]:
    x, others = node.first_sized()
    batch_first = is_batch_first(node)
    steps, batch = (1, 0) if batch_first else (0, 1)
    if len(x.counts) != 3 or x.counts[2] is not None:
        raise node.refuse("takes sizes that data decides for steps and samples only")
    inputs = [x.padded, *others, *[None] * (7 - len(others))]
    length = x.counts[steps]
    if length is not None and inputs[_LENGTHS] is None:
        lengths = for_all(node, length, x.padded.type.shape[batch])
        inputs[_LENGTHS] = node.emit("Cast", [lengths], {"to": DType.INT32.value})
    y, *states = layer_results(node, inputs, activations)
    samples = x.counts[batch]
    of_steps = (samples, length, None, None) if batch_first else (length, None, samples, None)
    of_states = (samples, None, None) if batch_first else (None, samples, None)
    return [node.value_of(y, of_steps), *(node.value_of(state, of_states) for state in states)]


RULES: Final[dict[str, SizedRule]] = {
    op_type: partial(_recurrent, activations) for op_type, activations in LAYER_ACTIVATIONS.items()
}
