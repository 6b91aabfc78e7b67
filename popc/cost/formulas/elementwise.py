"""Elementwise vertices.

A row of a table says what one op costs: ``cycles`` for each vector (or each element, if
``vector`` is false), plus what loading and storing adds, unless the loop is ``unrolled``.
"""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.numbers import VECTOR, WORKERS, Count, ceil_div
from popc_runtime.ground.frozen import frozen

__all__ = [
    "BINARY",
    "NON_LINEAR",
    "UNARY",
    "Lanes",
    "Speed",
    "bias_add",
    "binary",
    "broadcast",
    "cast",
    "fill",
    "non_linear",
    "scaled_add",
    "select",
    "unary",
]

# The kinds of elements that vertices exist for: "half", "float" or "int"; casts know "quarter".
Lanes = str

_BASIC_OVERHEAD: Final = 11  # cycles of the supervisor, as poplibs' basicOpSupervisorOverhead


@frozen
class Speed:
    """The speed of an op: ``cycles`` for each ``per`` elements.

    ``natural``: the loop is not unrolled, so loads and stores come on top.
    """

    cycles: int
    per: int = 1
    natural: bool = False


def _unrolled(cycles: int, per: int = 1) -> Speed:
    return Speed(cycles, per)


def _natural(cycles: int, per: int = 1) -> Speed:
    return Speed(cycles, per, natural=True)


UNARY: Final[dict[str, dict[str, Speed]]] = {
    "abs": {"float": _natural(1), "half": _natural(1), "int": _natural(2)},
    "asin": {"float": _natural(102), "half": _natural(102)},
    "cbrt": {"float": _natural(27, 2), "half": _natural(17, 4)},
    "erf": {"float": _unrolled(41), "half": _unrolled(13)},
    "exp": {"float": _unrolled(6, 2), "half": _unrolled(4, 4)},
    "expm1": {"float": _natural(4), "half": _natural(5, 4)},
    "gelu_erf": {"float": _unrolled(22), "half": _unrolled(16)},
    "inverse": {"float": _unrolled(6, 2), "half": _unrolled(15, 4)},
    "invert_variance": {"float": _unrolled(12, 2), "half": _unrolled(24, 4)},
    "isfinite": {"float": _natural(5), "half": _natural(5)},
    "isinf": {"float": _natural(3), "half": _natural(5)},
    "isnan": {"float": _natural(3), "half": _natural(3)},
    "log": {"float": _unrolled(12, 2), "half": _unrolled(4, 4)},
    "log1p": {"float": _natural(18, 2), "half": _natural(18, 4)},
    "logical_not": {"int": _natural(17)},
    "negate": {"float": _unrolled(2, 2), "half": _unrolled(2, 4), "int": _natural(2)},
    "popcount": {"int": _natural(1)},
    "relu": {"float": _unrolled(3, 2), "half": _unrolled(3, 4)},
    "round": {"float": _natural(2, 2), "half": _natural(2, 4)},
    "rsqrt": {"float": _unrolled(8, 2), "half": _unrolled(19, 4)},
    "sigmoid": {"float": _unrolled(12, 2), "half": _unrolled(6, 4)},
    "signum": {"float": _natural(5), "half": _natural(5), "int": _natural(5)},
    "sin": {"float": _natural(2300), "half": _unrolled(25)},
    "sqrt": {"float": _unrolled(10, 2), "half": _unrolled(23, 4), "int": _natural(110)},
    "square": {"float": _unrolled(2, 2), "half": _unrolled(2, 4), "int": _natural(1, 2)},
    "tan": {"float": _unrolled(5100), "half": _unrolled(5700)},
    "tanh": {"float": _unrolled(12, 2), "half": _unrolled(4, 4)},
    "trunc": {"float": _unrolled(3, 2), "half": _unrolled(11, 4)},
}

BINARY: Final[dict[str, dict[str, Speed]]] = {
    "add": {"float": _natural(1, 2), "half": _natural(1, 4), "int": _unrolled(7)},
    "atan2": {"float": _unrolled(272, 2), "half": _unrolled(578, 4)},
    "bitwise": {"int": _unrolled(7)},
    "compare": {"float": _unrolled(14, 4), "half": _unrolled(9, 4), "int": _unrolled(22, 4)},
    "divide": {"float": _unrolled(10, 2), "half": _unrolled(21, 4), "int": _unrolled(277)},
    "logical": {"int": _unrolled(5, 4)},
    "maximum": {"float": _unrolled(3, 2), "half": _unrolled(4, 4), "int": _unrolled(8)},
    "not_equal": {"float": _unrolled(20, 4), "half": _unrolled(11, 4), "int": _unrolled(22, 4)},
    "power": {"float": _unrolled(312), "half": _unrolled(325), "int": _unrolled(32)},
    "remainder": {"float": _unrolled(133, 2), "half": _unrolled(300, 4), "int": _unrolled(292)},
}

# Scalar and vector cycles of popnn's non-linearities.
NON_LINEAR: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "relu": {"float": (1, 1), "half": (1, 1)},
    "sigmoid": {"float": (5, 10), "half": (2, 4)},
    "tanh": {"float": (5, 10), "half": (1, 2)},
    "gelu": {"float": (10, 10), "half": (5, 5)},
    "gelu_erf": {"float": (30, 30), "half": (15, 15)},
    "swish": {"float": (6, 11), "half": (3, 5)},
    "relu_grad": {"float": (3, 3), "half": (3, 3)},
    "gelu_grad": {"float": (10, 10), "half": (5, 5)},
    "gelu_erf_grad": {"float": (30, 30), "half": (15, 15)},
    "swish_grad": {"float": (10, 15), "half": (7, 9)},
}


def _inner(speed: Speed, elements: Count, extra: int) -> Count:
    """Instructions of a worker for its ``elements``; ``extra`` for loads and stores."""
    cycles = speed.cycles + (extra if speed.natural else 0)
    return cycles * ceil_div(elements, speed.per)


def unary(name: str, lanes: Lanes, elements: Count, *, inplace: bool = False) -> Count:
    """UnaryOp1D for the elements of one tile."""
    speed = _speed(UNARY, name, lanes)
    setup = 55 if inplace else 33 if name == "exp" else 17
    worker = setup + _inner(speed, ceil_div(elements, WORKERS), 4)
    return WORKERS * worker + 9 + _BASIC_OVERHEAD


def binary(name: str, lanes: Lanes, elements: Count, *, inplace: bool = False) -> Count:
    """BinaryOp1D for the elements of one tile."""
    speed = _speed(BINARY, name, lanes)
    setup = 58 if inplace else 29 if lanes == "float" else 26
    worker = setup + _inner(speed, ceil_div(elements, WORKERS), 2)
    return WORKERS * worker + _BASIC_OVERHEAD


def broadcast(name: str, lanes: Lanes, elements: Count, *, rows: Count = 0) -> Count:
    """BroadcastScalar1D, or with ``rows`` BroadcastVectorOuterByRow: one scalar for each row."""
    speed = _speed(BINARY, name, lanes)
    inner = _inner(speed, ceil_div(elements, WORKERS), 1)
    if isinstance(rows, int) and rows == 0:
        return WORKERS * (20 + inner) + _BASIC_OVERHEAD
    return WORKERS * (15 + 25 * ceil_div(rows, WORKERS) + inner) + _BASIC_OVERHEAD


def _speed(table: dict[str, dict[str, Speed]], name: str, lanes: Lanes) -> Speed:
    """The speed for ``lanes``, or for the nearest kind of elements that the op exists for."""
    rows = table[name]
    return rows.get(lanes) or rows.get("float") or rows["int"]


def non_linear(name: str, lanes: Lanes, elements: Count) -> Count:
    """NonLinearity1D in place, or NonLinearityGrad1D, for the elements of one tile."""
    rows = NON_LINEAR[name]
    scalar, vector = rows.get(lanes, rows["float"])
    vectors = ceil_div(ceil_div(elements, WORKERS), 2 if lanes == "float" else 4)
    if name.endswith("_grad"):
        return 9 + WORKERS * (20 + 4 + (vectors - 1) * (vector + 1) + 1 + 7)
    # A vector is loaded and stored while another one is computed.
    return 9 + WORKERS * (20 + 2 + 2 * scalar + (vectors - 1) * (vector + 1) + 1 + 4)


def bias_add(lanes: Lanes, elements: Count, channels: Count) -> Count:
    """VectorInner ADD in place: a bias of ``channels`` elements added to each row of them."""
    per_worker = ceil_div(elements, WORKERS)
    rows = ceil_div(per_worker, channels)
    if lanes == "float":
        pairs = ceil_div(channels, 2)
        return 13 + WORKERS * (17 + 6 + pairs * (8 + 2 * rows) + 1)
    # Eight channels at a time: two words of the bias stay in registers while rows pass by.
    eights = ceil_div(channels, 8)
    return 13 + WORKERS * (19 + 7 + eights * (15 + 2 * (rows - 1)))


def scaled_add(lanes: Lanes, elements: Count) -> Count:
    """ScaledAdd: a + scale * b, in place."""
    per_worker = ceil_div(elements, WORKERS)
    if lanes == "int":
        return 50 + WORKERS * (53 + 26 * ceil_div(per_worker, 3))
    vectors = ceil_div(per_worker, VECTOR[lanes])
    return 21 + 11 + 7 + 12 + 6 + WORKERS * (15 + 6 + 3 * (vectors - 1) + 2 + 1)


def cast(source: Lanes, result: Lanes, elements: Count) -> Count:
    """Cast1D for the elements of one tile."""
    per_worker = ceil_div(elements, WORKERS)
    cycles, vector = _CAST.get((source, result), (2, 1))
    return 12 + WORKERS * (18 + 19 + cycles * ceil_div(per_worker, vector))


_CAST: Final = {
    ("half", "float"): (1, 2),
    ("float", "half"): (2, 4),
    ("quarter", "half"): (1, 4),
    ("half", "quarter"): (2, 8),
    ("quarter", "quarter"): (13, 8),
    ("half", "half"): (1, 4),
    ("float", "float"): (1, 2),
    ("int", "int"): (1, 2),
}


def fill(bytes_: Count) -> Count:
    """Fill1D, which one worker does, 64 bits at a time."""
    return WORKERS * (23 + ceil_div(bytes_, 8))


def select(elements: Count) -> Count:
    """Select with three operands of one shape."""
    return WORKERS * (5 + 6 + 5 * ceil_div(elements, WORKERS))
