"""The checks of an operator when it is added, beyond the number of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from popc.popart.errors import popart_exception

__all__ = ["CHECKS", "Check", "check_window"]

Shape = Sequence[int] | None
# Gets the shapes of the inputs, where they are known, and the parameters by name.
Check = Callable[[Sequence[str], Sequence[Shape], Mapping[str, Any]], None]


def check_window(
    names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any], kernel: Shape
) -> None:
    """Check that the numbers of a window fit the spatial dimensions of what it moves over.

    Args:
        names, shapes: Of the inputs.
        values: The parameters; ``strides``, ``pads`` and ``dilations`` count.
        kernel: The size of the window, if it is known.

    Raises:
        popart_exception: a length or the resulting shape does not fit.
    """
    del names
    data = shapes[0]
    if data is None:
        return
    spatial = list(data[2:])
    if not spatial:
        raise popart_exception(
            f"The input has no spatial dimensions: its shape is {_spaced(data)}, but must be "
            f"batch, channels and at least 1 more"
        )
    _check_lengths(values, len(spatial))
    if kernel is not None and len(kernel) == len(spatial):
        _check_result(values, spatial, kernel)


def _check_lengths(values: Mapping[str, Any], rank: int) -> None:
    for name in ("strides", "dilations"):
        numbers = values.get(name) or []
        if numbers and len(numbers) != rank:
            raise popart_exception(
                f"Length of {name} vector {len(numbers)} != number of spatial dimensions {rank}"
            )
        if name == "strides":
            pads = values.get("pads") or []
            if pads and len(pads) != 2 * rank:
                raise popart_exception(
                    f"Padding vector (length {len(pads)}) does not have 2 values for each spatial "
                    f"dimension {rank}"
                )


def _check_result(values: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]) -> None:
    rank = len(spatial)
    strides = values.get("strides") or [1] * rank
    dilations = values.get("dilations") or [1] * rank
    pads = values.get("pads") or [0] * (2 * rank)
    sizes = [
        (size + pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[axis] - 1) - 1)
        // max(1, strides[axis])
        + 1
        for axis, size in enumerate(spatial)
    ]
    if any(size < 0 for size in sizes):
        raise popart_exception(
            "Window parameter values combine to give invalid spatial output shape: "
            + _spaced(sizes)
        )


def _conv(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    weights = shapes[1]
    inferred = None if weights is None else list(weights[2:])
    kernel = values.get("kernel_shape") or []
    if shapes[0] is not None and inferred is not None and kernel and kernel != inferred:
        raise popart_exception(
            f"kernel_shape, {_spaced(kernel)}, does not match inferred shape from weight input "
            f"'{names[1]}', {_spaced(inferred)}"
        )
    check_window(names, shapes, values, inferred)


def _pool(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    check_window(names, shapes, values, values["kernel_shape"])


def _pad(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    del names
    data, pads = shapes[0], values.get("pads")
    if data is not None and pads is not None and len(pads) != 2 * len(data):
        raise popart_exception(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input dimension "
            f"{len(data)}"
        )


def _split(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    del names
    data, axis, sizes, count = (
        shapes[0],
        values["axis"],
        values["split"],
        values["num_outputs"],
    )
    if data is None or not data:
        return
    rank = len(data)
    if not -rank <= axis < rank:
        raise popart_exception(
            f"Invalid value of attribute 'axis', {axis}, for an input of rank {rank}"
        )
    dim = data[axis]
    if sizes and len(sizes) != count:
        raise popart_exception(
            f"Mismatch between the number of splits ({len(sizes)}) and the number of outputs "
            f"({count})"
        )
    if sizes and sum(sizes) != dim:
        raise popart_exception(
            f"Mismatch between the sum of splits ({sum(sizes)}) and the size of dimension {axis} "
            f"({dim})"
        )
    if not sizes and count and dim % count:
        raise popart_exception(
            f"The input is not evenly splittable: dimension {axis} of size {dim} into {count} parts"
        )


def _subsample(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    del names, shapes
    for index, stride in enumerate(values["strides"]):
        if stride == 0:
            raise popart_exception(f"Strides invalid. 0 stride at index {index}")


def _call(names: Sequence[str], shapes: Sequence[Shape], values: Mapping[str, Any]) -> None:
    """Check that arguments and results are as many as the subgraph has."""
    del shapes
    inputs, outputs, _ = values["callee"].named_tensors()
    title = values["debug"].getPathName()
    for what, given, own in (
        ("inputs", len(names), len(inputs)),
        ("outputs", values["num_outputs"], len(outputs)),
    ):
        if given != own:
            raise popart_exception(
                f"For CallOp '{title}', number of {what} ({given}) does not match that of the "
                f"callee subgraph ({own})"
            )


def _spaced(sizes: Sequence[int]) -> str:
    return f"[{' '.join(map(str, sizes))}]"


# By operator; where the numbers are inputs and no parameters, nothing is checked here.
CHECKS: Final[dict[str, Check]] = {
    "AveragePool": _pool,
    "Call": _call,
    "Conv": _conv,
    "MaxPool": _pool,
    "Pad": _pad,
    "Split": _split,
    "Subsample": _subsample,
}
