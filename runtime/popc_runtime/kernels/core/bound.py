"""Memory that kernels are given, none of whose reshaped forms is a copy.

numpy's ``reshape`` gives a view where the layout allows it, and silently a copy where it does not.
A kernel that writes into such a copy leaves its result as it was; one that reads a copy made when
the program was bound sees what lay there then.  So while a kernel is bound its operands, results
and temporaries are arrays that refuse to be copied in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import BuiltinMethodType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import replace
from popc_runtime.kernels.core.operands import Operands

__all__ = ["Bound", "Call", "Result", "guarded", "merged_view", "plain_calls", "while_binding"]

Call: TypeAlias = Callable[[], object]
_B = TypeVar("_B", bound=Operands[Array])

_IS_BINDING: Final[ContextVar[bool]] = ContextVar("_IS_BINDING", default=False)


def merged_view(array: Array, shape: tuple[int, ...]) -> Array | None:
    """``array`` reshaped to ``shape`` if that needs no copy."""
    view = np.asarray(array).reshape(shape)
    return view.view(type(array)) if _shares(view, array) else None


def _shares(view: Array, array: Array) -> bool:
    return not array.size or np.may_share_memory(view, array)


class Bound(np.ndarray[Any, np.dtype[Any]]):
    """An operand, temporary memory, or a view of these; what is computed of it is as any array.

    Copies that are made whenever a call runs do no harm; those made while it is bound are refused.
    """

    def reshape(self, *shape: Any, order: Any = "C", copy: Any = None) -> Any:
        """A view of the same elements.

        Raises:
            ValueError: the strides do not allow it.
        """
        assert not copy, "whoever wants a copy asks for it in so many words"
        view = super().reshape(*shape, order=order)
        if not _shares(view, self) and self._is_strict() and self._is_memory():
            raise ValueError(
                f"internal error: a tensor of shape {self.shape} with strides {self.strides} "
                f"cannot have shape {view.shape} without a copy"
            )
        return view

    def ravel(self, order: Any = "C") -> Any:
        """All elements in one dimension: see `reshape`."""
        return self.reshape(-1, order=order)

    def _is_strict(self) -> bool:
        return _IS_BINDING.get()

    def __array_wrap__(
        self,
        array: Any,
        context: object = None,
        return_scalar: bool = False,  # noqa: FBT001, FBT002 - numpy says so
    ) -> Any:
        """The result of numpy's functions: what they have computed, no memory of the program."""
        del context
        return array[()] if return_scalar else array

    def _is_memory(self) -> bool:
        """True if it is a view of what `guarded` was given, and no result of a function of it."""
        base: Any = self.base
        while isinstance(base, Bound):
            base = base.base
        return base is not None


class Result(Bound):
    """A result that a kernel fills: a copy of it is wrong at any time."""

    def _is_strict(self) -> bool:
        return True


@contextmanager
def while_binding() -> Iterator[None]:
    """Meanwhile operands are not copied by reshaping them."""
    token = _IS_BINDING.set(True)
    try:
        yield
    finally:
        _IS_BINDING.reset(token)


def guarded(binding: _B) -> _B:
    """The same with arrays that refuse copies; constants are what they are, and may be copied."""
    pairs = zip(binding.inputs, binding.constant, strict=True)
    return replace(
        binding,
        inputs=tuple(
            array if array is None or constant else array.view(Bound) for array, constant in pairs
        ),
        outputs=tuple(None if array is None else array.view(Result) for array in binding.outputs),
    )


def plain_calls(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The same calls with numpy's own arrays, which its functions take in less time."""
    return tuple(map(_plain, calls))


def _plain(value: Any) -> Any:
    if isinstance(value, Bound):
        return value.view(np.ndarray)
    if isinstance(value, tuple):
        return tuple(map(_plain, value)) if type(value) is tuple else value
    if isinstance(value, partial):
        keywords = {name: _plain(argument) for name, argument in value.keywords.items()}
        return partial(_plain_function(value.func), *map(_plain, value.args), **keywords)
    return value


def _plain_function(function: Any) -> Any:
    """A function, or a method of an array."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Bound) and isinstance(function, BuiltinMethodType):
        return getattr(_plain(owner), function.__name__)
    return function
