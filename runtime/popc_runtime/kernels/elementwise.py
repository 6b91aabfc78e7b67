"""Elementwise arithmetic, comparison, logic and rounding, with numpy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.kernels.binding import Binding, Calls, Kernel

__all__ = ["KERNELS"]


def _ufunc(function: Callable[..., Any]) -> Kernel:
    """One numpy ufunc over all inputs, straight into the output."""

    def kernel(binding: Binding) -> Calls:
        operands = [binding.input(index) for index in range(len(binding.inputs))]
        return partial(function, *operands, out=binding.output())

    return kernel


def _relu(binding: Binding) -> Calls:
    x = binding.input(0)
    return partial(np.maximum, x, x.dtype.type(0), out=binding.output())


KERNELS: Final[dict[str, Kernel]] = {
    "Abs": _ufunc(np.absolute),
    "Add": _ufunc(np.add),
    "Exp": _ufunc(np.exp),
    "Mul": _ufunc(np.multiply),
    "Neg": _ufunc(np.negative),
    "Relu": _relu,
    "Sub": _ufunc(np.subtract),
}
