"""Operators that users define in Python: registered by name, found by models and by archives.

    def cube(inputs, attributes):
        return inputs[0] ** 3

    def cube_gradient(inputs, outputs, gradients, attributes):
        return [3 * inputs[0] ** 2 * gradients[0]]

    popc.custom.register(
        "com.acme", "Cube", types=popc.custom.like_first, compute=cube, gradient=cube_gradient
    )

A node of domain "com.acme" and type "Cube" is an op like any other from then on.  Archives hold
the names of the operators that they need, and no code: who loads one registers them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from popc_runtime.errors import UnregisteredOperatorError, UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any, Final, TypeAlias

__all__ = [
    "ArrayType",
    "Compute",
    "CustomOperator",
    "Gradient",
    "TypeRule",
    "find_operator",
    "like_first",
    "operator_named",
    "register",
    "registered",
    "require_operators",
    "unregister",
]

_STANDARD: Final = ("", "ai.onnx")


@frozen
class ArrayType:
    """The type of an operand or result.

    Attributes:
        dtype: The element type as numpy names it, or "bfloat16", whose arrays are float32.
        shape: The size of each dimension.
    """

    dtype: str
    shape: tuple[int, ...]


CustomAttributes: TypeAlias = Mapping[str, Any]
# Types of the results, from those of the operands (None: absent) and the attributes of the node.
TypeRule: TypeAlias = Callable[["Sequence[ArrayType | None]", CustomAttributes], "Sequence[Any]"]
# The results (one array, or several in a list or tuple), from the operands and attributes.
Compute: TypeAlias = Callable[["Sequence[Any]", CustomAttributes], Any]
# The gradients of the operands (None: has none), from operands, results and their gradients.
Gradient: TypeAlias = Callable[
    ["Sequence[Any]", "Sequence[Any]", "Sequence[Any]", CustomAttributes], "Sequence[Any]"
]


@frozen
class CustomOperator:
    """An operator that a user has registered: see `register`."""

    domain: str
    name: str
    version: int
    types: TypeRule
    compute: Compute
    gradient: Gradient | None = None

    @property
    def identifier(self) -> str:
        """Domain, name and version, as archives and messages have them: ``com.acme.Cube:1``."""
        return f"{self.domain}.{self.name}:{self.version}"


_REGISTERED: Final[dict[str, CustomOperator]] = {}


def register(
    domain: str,
    name: str,
    *,
    types: TypeRule,
    compute: Compute,
    gradient: Gradient | None = None,
    version: int = 1,
) -> CustomOperator:
    """Make an operator known in this process.

    All functions get the attributes of the node by name, lists as tuples.  They must depend on
    their arguments alone, for the compiler moves, merges and repeats ops, and threads may call them
    at the same time.

    Args:
        domain: Of the operator in models; it may also be ``ai.graphcore``, whose operator of that
            name it then stands for.
        name: Its type in models.
        types: Gives the types of the results (`ArrayType`, or a pair of dtype and shape), from a
            list of the types of the operands, ``None`` where one is absent.
        compute: Gives the results, from a list of the operands, which are read-only arrays, or
            ``None``.  A result is converted to its type if both are floats, or both integers.
        gradient: Gives a list with the gradient of each operand, or ``None`` where there is none,
            from lists of operands, of results and of the gradients of the results.  Without it,
            nothing can be trained through the operator.
        version: The opset version of the domain from which on the operator is this.

    Raises:
        UsageError: there is one of that domain, name and version, or it is one of ONNX itself.
    """
    if domain in _STANDARD:
        raise UsageError(
            f"{name} cannot be registered in the domain of ONNX: its operators are defined",
            subject=name,
            hint="choose a domain of your own, such as com.acme",
        )
    if not name or version < 1:
        what = "it has no name" if not name else f"version {version} is less than 1"
        raise UsageError(f"an operator of {domain} cannot be registered: {what}", subject=domain)
    operator = CustomOperator(domain, name, version, types, compute, gradient)
    if operator.identifier in _REGISTERED:
        raise UsageError(
            f"the operator {operator.identifier} is registered already",
            subject=operator.identifier,
            hint="unregister it first, or give the new one another version",
        )
    _REGISTERED[operator.identifier] = operator
    return operator


def unregister(domain: str, name: str, *, version: int = 1) -> None:
    """Forget an operator; programs that are loaded already keep it.

    Raises:
        UsageError: there is none of that domain, name and version.
    """
    identifier = f"{domain}.{name}:{version}"
    if _REGISTERED.pop(identifier, None) is None:
        known = ", ".join(_REGISTERED) or "none"
        raise UsageError(
            f"no operator {identifier} is registered",
            subject=identifier,
            hint=f"there are: {known}",
        )


def registered() -> tuple[CustomOperator, ...]:
    """All operators, by domain, name and version."""
    return tuple(
        sorted(_REGISTERED.values(), key=lambda found: (found.domain, found.name, found.version))
    )


def find_operator(domain: str, name: str, opset: int) -> CustomOperator | None:
    """The operator for a node: of its versions the newest up to ``opset``; ``None`` without."""
    if not _REGISTERED:
        return None
    fitting = [
        found
        for found in _REGISTERED.values()
        if (found.domain, found.name) == (domain, name) and found.version <= opset
    ]
    return max(fitting, key=lambda found: found.version, default=None)


def operator_named(identifier: str) -> CustomOperator:
    """The operator that an archive, or an op, asks for.

    Raises:
        UnregisteredOperatorError: there is none.
    """
    require_operators((identifier,))
    return _REGISTERED[identifier]


def require_operators(identifiers: Iterable[str]) -> None:
    """Check that all operators of a program are registered.

    Raises:
        UnregisteredOperatorError: lists those that are not.
    """
    missing = sorted(set(identifiers) - _REGISTERED.keys())
    if missing:
        raise UnregisteredOperatorError(
            "the program needs operators that are not registered in this process",
            subject=missing[0],
            details=tuple(missing),
            hint="call popc_runtime.custom.register for each before the program is loaded",
        )


def like_first(
    inputs: Sequence[ArrayType | None], attributes: CustomAttributes
) -> Sequence[ArrayType | None]:
    """A type rule: one result, of the type of the first operand."""
    del attributes
    return inputs[:1]
