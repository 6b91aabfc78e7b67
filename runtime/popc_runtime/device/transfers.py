"""Host transfers as calls on numpy's arrays."""

from __future__ import annotations

from functools import partial

import numpy as np

from popc_runtime.device.ports import InputPort, OutputPort
from popc_runtime.format import Array
from popc_runtime.kernels import Call

__all__ = ["load_calls", "store_calls"]


def load_calls(source: InputPort, target: Array) -> tuple[Call, ...]:
    """The calls that fill ``target`` with the next sample."""
    if target.flags.c_contiguous:
        return (partial(source.load, _bytes_of(target)),)
    near = np.empty(target.shape, target.dtype)
    return partial(source.load, _bytes_of(near)), partial(np.copyto, target, near)


def store_calls(sink: OutputPort, value: Array) -> tuple[Call, ...]:
    """The calls that hand ``value`` on."""
    if value.flags.c_contiguous:
        return (partial(sink.store, _bytes_of(value)),)
    near = np.empty(value.shape, value.dtype)
    return partial(np.copyto, near, value), partial(sink.store, _bytes_of(near))


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
