"""Functions of users on the operands of an instruction: registered operators, and host calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from popc_runtime.custom import operator_named
from popc_runtime.errors import DeviceError, PopcError
from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Kernel

__all__ = ["CALL", "GIVEN", "KERNELS", "OPERATOR", "given_attributes"]

OPERATOR: Final = "operator"  # the attribute with the operator's identifier
CALL: Final = "call"  # the attribute with the name of a function of the host
GIVEN: Final = "given."  # in front of the names of the node's own attributes


def given_attributes(attributes: Any) -> dict[str, Any]:
    """The attributes of the node, out of those of its op."""
    return {
        name.removeprefix(GIVEN): value
        for name, value in attributes.items()
        if name.startswith(GIVEN)
    }


def _compute(binding: Binding) -> Call:
    operator = operator_named(binding.text(OPERATOR))
    owner = operator.identifier
    attributes = given_attributes(binding.attributes)
    inputs = [_readable(array) for array in binding.inputs]
    targets = tuple(binding.outputs)

    def call() -> None:
        found = _called(owner, "compute", lambda: operator.compute(inputs, attributes))
        arrays = found if isinstance(found, list | tuple) else (found,)
        _store(owner, "compute", arrays, targets)

    return call


def _gradient(binding: Binding) -> Call:
    """Operands: those of the op, its results, and the gradients of these."""
    operator = operator_named(binding.text(OPERATOR))
    gradient = operator.gradient
    if gradient is None:
        raise DeviceError(
            f"the operator {operator.identifier} is registered without the gradient that the "
            "program needs",
            subject=operator.identifier,
        )
    owner = operator.identifier
    attributes = given_attributes(binding.attributes)
    arrays = [_readable(array) for array in binding.inputs]
    count = binding.integer("operands")
    results = (len(arrays) - count) // 2
    inputs, outputs = arrays[:count], arrays[count : count + results]
    gradients = arrays[count + results :]
    wanted = binding.integers("wanted")
    targets = tuple(binding.outputs)

    def call() -> None:
        found = _called(owner, "gradient", lambda: gradient(inputs, outputs, gradients, attributes))
        if not isinstance(found, list | tuple) or len(found) != count:
            raise _error(owner, f"gradient must give a list of {count}, one for each operand")
        missing = [index for index in wanted if found[index] is None]
        if missing:
            zeros = {index: np.zeros_like(inputs[index]) for index in missing}
            found = [zeros.get(index, array) for index, array in enumerate(found)]
        _store(owner, "gradient", [found[index] for index in wanted], targets)

    return call


def _host_call(binding: Binding) -> Call:
    """The function of this name on the operands; it may give nothing if no result is asked for."""
    name = binding.text(CALL)
    function = binding.calls.get(name)
    owner = f"the host call {name}"
    if function is None:
        raise _error(owner, "no function of this name was given to load")
    inputs = [_readable(array) for array in binding.inputs]
    targets = tuple(binding.outputs)

    def call() -> None:
        found = _called(owner, "the function", lambda: function(*inputs))
        if not targets:
            return
        arrays = found if isinstance(found, list | tuple) else (found,)
        _store(owner, "the function", arrays, targets)

    return call


def _readable(array: Array | None) -> Array | None:
    """A plain view that the user's function cannot write to."""
    if array is None:
        return None
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def _called(owner: str, what: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except PopcError:
        raise
    except Exception as error:
        text = f"{what} raised {type(error).__name__}: {error}"
        raise _error(owner, text) from error


def _store(owner: str, what: str, found: Sequence[Any], targets: Sequence[Array | None]) -> None:
    """Copy results to where they belong, if they are what the type rule says."""
    if len(found) != len(targets):
        raise _error(owner, f"{what} gave {len(found)} results, but its types are {len(targets)}")
    for number, (value, target) in enumerate(zip(found, targets, strict=True)):
        if target is None:
            continue
        array = np.asarray(value)
        if array.shape != target.shape:
            raise _error(
                owner,
                f"result {number} of {what} has the shape {list(array.shape)}, but its type says "
                f"{list(target.shape)}",
            )
        if not np.can_cast(array.dtype, target.dtype, casting="same_kind"):
            raise _error(
                owner,
                f"result {number} of {what} is {array.dtype}, but its type says {target.dtype}",
            )
        np.copyto(target, array, casting="same_kind")


def _error(owner: str, text: str) -> DeviceError:
    return DeviceError(f"{owner}: {text}", subject=owner)


KERNELS: Final[dict[str, Kernel]] = {
    "Custom": _compute,
    "CustomGrad": _gradient,
    "HostCall": _host_call,
}
