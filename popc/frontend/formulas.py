"""Initializers that are numbers of a formula, or masks, rather than weights.

Converters write both alike: an epsilon, the 0.5 of a GELU or a causal mask is an initializer like
any matrix.  Where the user does not name the weights to train, what can only be a constant is left
alone, and what may be one is told.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from math import isfinite, sqrt
from typing import Final, TypeAlias

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.names import listed, shown
from popc.frontend.tensors import decode_tensor, is_supported
from popc.frontend.walk import all_nodes
from popc.ir import TensorType
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.stored import floats_of

__all__ = ["FormulaNumbers", "find_formula_numbers"]

# Where an operator takes a number that no training changes: op type -> operands.
_NUMBERS: Final[Mapping[str, frozenset[int]]] = {
    "Clip": frozenset({1, 2}),
    "Dropout": frozenset({1}),
    "Max": frozenset(range(16)),
    "Min": frozenset(range(16)),
    "Mod": frozenset({1}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "QuantizeLinear": frozenset({1}),
    "DequantizeLinear": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual"), frozenset({0, 1})),
    **dict.fromkeys(("Less", "LessOrEqual"), frozenset({0, 1})),
}
_ELEMENTWISE: Final = frozenset({*_NUMBERS, "Add", "Sub", "Mul", "Div", "Where", "Sum"})

# Numbers of the usual formulas, apart from whole ones, their roots, and reciprocals of both.
_USUAL: Final = (0.044715, sqrt(2 / np.pi), 1.702, np.pi, np.e, np.log(2), np.log(10))
_CLOSE: Final = 1e-6  # relative: constants are exported as float32, which rounds by 6e-8
_LARGEST_ROOT: Final = 1 << 14  # square roots of dimensions of heads and the like
_MASKED: Final = -1e4  # what masks add to scores is at most this
_MOST_BYTES: Final = 1 << 26
# What tf2onnx and paddle2onnx call the tensors that they make up or fold.
_CONVERTERS: Final = re.compile(
    r"(const_fold_opt__|const_(zero|ones|minus_one|two|eight)__|auto\.\w+\.)\d+"
)

_Use: TypeAlias = "tuple[onnx.NodeProto, int]"


@frozen
class FormulaNumbers:
    """Initializers that are not what they seem.

    Attributes:
        constant: Descriptions by name of those that are no weights.
        doubtful: Of those that may be none.
    """

    constant: Mapping[str, str] = field(default_factory=dict[str, str])
    doubtful: Mapping[str, str] = field(default_factory=dict[str, str])

    def notes(self, is_trainable: Callable[[str], bool]) -> list[str]:
        """Notes for the user; ``is_trainable`` by name alone: others are out of the question."""
        found: list[str] = []
        trained = [text for name, text in self.doubtful.items() if is_trainable(name)]
        if trained:
            found.append(
                f"trained, but perhaps constants of a formula: {listed(trained)}; "
                "[weights] frozen = [...] keeps them as they are"
            )
        left = [text for name, text in self.constant.items() if is_trainable(name)]
        if left:
            found.append(
                f"not trained, as scalars and constants of formulas: {listed(left)}; "
                "[weights] trainable = [...] names what to train"
            )
        return found


def find_formula_numbers(
    tensors: Iterable[tuple[str, onnx.TensorProto]], nodes: Sequence[onnx.NodeProto], base_dir: str
) -> FormulaNumbers:
    """Judge floating-point tensors by what ``nodes`` use them for, and by what they hold.

    Those that training never changes, but which nobody would take for weights, are left out.

    Args:
        tensors: Initializers by name.
        nodes: Nodes of the main graph.
        base_dir: Where the external data of the model is.
    """
    uses: dict[str, list[_Use]] = defaultdict(list)
    for node in all_nodes(nodes):
        for index, name in enumerate(node.input):
            uses[name].append((node, index))
    constant: dict[str, str] = {}
    doubtful: dict[str, str] = {}
    for name, proto in tensors:
        used = uses.get(name, [])
        if not _is_candidate(proto, used):
            continue
        type_, stored = decode_tensor(proto, base_dir)
        if not type_.dtype.is_float or not stored.size:
            continue
        values = floats_of(stored, type_.dtype).astype(np.float64)
        what = _described(name, type_, values, used)
        if _is_constant(values, used, uses):
            if type_.rank > 0:
                constant[name] = what
        elif type_.rank == 0:
            constant[name] = what  # no scalar is trained, but this may be meant to be
        elif _are_elementwise(used) and (_is_doubtful(values) or _CONVERTERS.fullmatch(name)):
            doubtful[name] = what
    return FormulaNumbers(constant, doubtful)


def _is_candidate(proto: onnx.TensorProto, used: Sequence[_Use]) -> bool:
    size = int(np.prod(proto.dims, dtype=np.float64))
    is_small = size == 1 or (_are_elementwise(used) and size * 8 <= _MOST_BYTES)
    return is_supported(proto.data_type) and bool(used) and is_small


def _are_elementwise(used: Sequence[_Use]) -> bool:
    return all(node.op_type in _ELEMENTWISE for node, _ in used)


def _described(name: str, type_: TensorType, values: Array, used: Sequence[_Use]) -> str:
    value = f" = {values.reshape(-1)[0]:g}" if values.size == 1 else ""
    ops = ", ".join(dict.fromkeys(node.op_type for node, _ in used))
    return f"{shown(name)} ({type_}{value}, for {ops})"


def _is_constant(values: Array, used: Sequence[_Use], uses: Mapping[str, Sequence[_Use]]) -> bool:
    if not _are_elementwise(used):
        return False
    if values.size > 1:
        return _is_mask(values)
    number = abs(float(values.reshape(-1)[0]))
    in_formulas = all(_takes_number(node, index, uses) for node, index in used)
    return in_formulas or not isfinite(number) or _is_usual(number)


def _takes_number(node: onnx.NodeProto, index: int, uses: Mapping[str, Sequence[_Use]]) -> bool:
    """True if operand ``index`` is one that no training changes."""
    if index in _NUMBERS.get(node.op_type, ()):
        return True
    if node.op_type == "Div":
        return index == 1
    if node.op_type not in ("Add", "Sum"):
        return False
    # An epsilon: what is added before a root, a logarithm or a division.
    after = uses.get(node.output[0], ())
    roots = ("Sqrt", "Log", "Reciprocal")
    return bool(after) and all(
        user.op_type in roots or (user.op_type == "Div" and at == 1) for user, at in after
    )


def _is_usual(number: float) -> bool:
    """True if formulas have ``number`` in them; 0 and 1 are what weights may begin with."""
    if number in (0.0, 1.0):
        return False
    size = max(number, 1 / number)
    if size > _LARGEST_ROOT:
        return _is_close(np.log10(size), round(np.log10(size)))
    usual = (*_USUAL, round(size), sqrt(round(size**2)))
    return any(_is_close(number, constant) or _is_close(size, constant) for constant in usual)


def _is_close(number: float, other: float) -> bool:
    return abs(number - other) <= _CLOSE * number


def _is_mask(values: Array) -> bool:
    """True if it hides elements: nothing is added to some, what is far below zero to the others."""
    hidden = values <= _MASKED
    return bool(hidden.any()) and not values[~hidden].any()


def _is_doubtful(values: Array) -> bool:
    """True if it is one number, or counts or marks elements.

    Weights may begin as zeros or as ones.
    """
    if values.size == 1:
        return True
    flat = values.reshape(-1)
    return bool((flat == np.round(flat)).all()) and not ((flat == 0).all() or (flat == 1).all())
