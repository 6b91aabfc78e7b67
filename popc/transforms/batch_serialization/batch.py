"""The inputs that have a batch, and its axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase

from popc.ir import Graph, Tensor
from popc.ir.attributes import text
from popc.options import BatchOptions
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import mutable

__all__ = ["find_batch"]

_FACTOR = "batch_serialization_factor"
_AXES = "batch_serialization_axes"


def find_batch(graph: Graph, options: BatchOptions) -> dict[Tensor, int]:
    """The batch axis of each input that has one.

    Where the options say nothing it is dimension 0 of the inputs that agree on its size with most
    others.  An input is a graph input or what a HostLoad gives.

    Raises:
        OptionError: no input has a batch, the options contradict the model, or the factor does
            not divide the batch; all problems are named.
    """
    inputs = _inputs(graph)
    found = _Inputs(inputs, options)
    found.check_axes()
    batch = found.batch()
    if batch is not None:
        found.check(batch, options.batch_serialization_factor)
    if found.problems:
        raise OptionError(
            f"{_FACTOR} is {options.batch_serialization_factor}, but the batch cannot be cut "
            "that way",
            subject=_FACTOR,
            details=tuple(found.problems),
            hint=f"choose a factor that divides the batch; {_AXES} says where inputs have it",
        )
    return {inputs[name]: axis for name, axis in found.places(batch)}


def _inputs(graph: Graph) -> dict[str, Tensor]:
    loads = {
        text(op.attributes, "stream"): op.output for op in graph.ops if op.op_type == "HostLoad"
    }
    return loads or {tensor.name: tensor for tensor in graph.inputs}


@mutable
class _Inputs:
    """Inputs by name, what the options say of them, and what is wrong with that."""

    inputs: Mapping[str, Tensor]
    options: BatchOptions
    problems: list[str] = field(default_factory=list[str])

    def check_axes(self) -> None:
        """Entries of the option must fit inputs that have such a dimension."""
        for pattern in self.options.batch_serialization_axes:
            if not any(name == pattern or fnmatchcase(name, pattern) for name in self.inputs):
                listed = ", ".join(self.inputs) or "none"
                self.problems.append(f"{_AXES} names {pattern!r}, but the inputs are: {listed}")
        for name, tensor in self.inputs.items():
            axis = self.options.batch_axis(name)
            if isinstance(axis, int) and axis >= tensor.type.rank:
                self.problems.append(f"{_AXES} of {name!r} is {axis}, but it is {tensor.type}")

    def batch(self) -> int | None:
        """The size of the batch: what the options name, or else dimension 0 of most inputs."""
        named = self._named()
        sizes = Counter(named.values())
        if len(sizes) > 1:
            listed = ", ".join(f"{name!r} with {size}" for name, size in named.items())
            self.problems.append(f"{_AXES} names batches of different sizes: {listed}")
        if not named:
            sizes = Counter(self.inputs[name].type.shape[0] for name in self._unnamed())
        if not sizes:
            self.problems.append("no input has a batch")
            return None
        return max(sizes, key=lambda size: sizes[size])  # the first of equally frequent ones

    def check(self, batch: int, factor: int) -> None:
        """The factor must divide the batch."""
        where = next((f"{name!r}" for name, _ in self.places(batch)), "no input")
        if batch < factor:
            self.problems.append(
                f"the batch, {batch} (of input {where}), is smaller than the factor"
            )
        elif batch % factor:
            self.problems.append(f"{factor} does not divide the batch, {batch} (of input {where})")

    def places(self, batch: int | None) -> Iterator[tuple[str, int]]:
        """Names of inputs with a batch, and its axis."""
        for name in self._named():
            axis = self.options.batch_axis(name)
            assert isinstance(axis, int)
            yield name, axis
        for name in self._unnamed():
            if self.inputs[name].type.shape[0] == batch:
                yield name, 0

    def _named(self) -> dict[str, int]:
        """Sizes of the axes that the options name, by input."""
        found: dict[str, int] = {}
        for name, tensor in self.inputs.items():
            axis = self.options.batch_axis(name)
            if isinstance(axis, int) and axis < tensor.type.rank:
                found[name] = tensor.type.shape[axis]
        return found

    def _unnamed(self) -> list[str]:
        """Inputs of which the options say nothing and that have a dimension 0."""
        return [
            name
            for name, tensor in self.inputs.items()
            if self.options.batch_axis(name) is None and tensor.type.rank
        ]
