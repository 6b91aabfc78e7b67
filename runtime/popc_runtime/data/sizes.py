"""Results of which data decides sizes: cut out of the largest that they can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from popc_runtime.data.tensors import ResultTensor
from popc_runtime.format import DType, TensorSpec
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Any

__all__ = ["OutputSizes"]


class OutputSizes:
    """The sizes of a program's outputs, which are outputs themselves until results are cut.

    Attributes:
        specs: The sizes: one int64 each.
    """

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        names = dict.fromkeys(name for spec in outputs for name in spec.sizes if name)
        self.specs = tuple(TensorSpec(name, DType.INT64, ()) for name in names)
        self._outputs = {spec.name: spec for spec in outputs}

    def cut(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays, cut to their sizes: views of those that are larger."""
        found = {name: int(results[name]) for name in self._names}
        return {
            name: self._corner(name, array, found)
            for name, array in results.items()
            if name not in found
        }

    @property
    def _names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    def _corner(self, name: str, array: Any, found: Mapping[str, int]) -> Any:
        sizes = self._outputs[name].sizes
        if not sizes:
            return array
        return array[tuple(slice(found[size]) if size else slice(None) for size in sizes)]

    def cut_buffers(self, results: Mapping[str, bytearray]) -> dict[str, ResultTensor]:
        """Results as plain memory, cut to their sizes."""
        found = {name: int.from_bytes(results[name], "little", signed=True) for name in self._names}
        made: dict[str, ResultTensor] = {}
        for name, spec in self._outputs.items():
            sizes = spec.sizes or ("",) * len(spec.shape)
            dims = zip(spec.shape, sizes, strict=True)
            shape = tuple(found[size] if size else dim for dim, size in dims)
            data = _corner_of(memoryview(results[name]), spec.shape, shape, spec.dtype.itemsize)
            made[name] = ResultTensor(replace(spec, shape=shape, sizes=()), data)
        return made

    def connected(
        self,
        takers: Mapping[str, Callable[[Any], object]],
        run: Callable[[Mapping[str, Callable[[Any], object]]], object],
    ) -> None:
        """``run`` with takers of all outputs; then ``takers`` get what is wanted, cut."""
        kept: dict[str, Any] = {}
        wanted = [*takers, *self._names]
        run({name: partial(kept.__setitem__, name) for name in wanted})
        for name, array in self.cut(kept).items():
            takers[name](array)


def _corner_of(
    data: memoryview, shape: tuple[int, ...], wanted: tuple[int, ...], itemsize: int
) -> bytearray:
    """The corner of a tensor in C order that has the shape ``wanted``."""
    if shape[1:] == wanted[1:]:
        return bytearray(data[: prod(wanted) * itemsize])
    row = prod(shape[1:]) * itemsize
    parts = (
        _corner_of(data[place * row : (place + 1) * row], shape[1:], wanted[1:], itemsize)
        for place in range(wanted[0])
    )
    return bytearray(b"").join(parts)
