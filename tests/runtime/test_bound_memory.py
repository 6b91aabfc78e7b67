"""What kernels are given refuses to be copied where they expect a view."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc_runtime.kernels
from popc_runtime.format import Array, DType
from popc_runtime.kernels import Binding, Calls, RandomState, Scratch, prepare
from popc_runtime.kernels.core.bound import Bound, merged_view

# Functions of numpy that copy where the layout asks for it, and say nothing.
_SILENT: Final = frozenset({"ascontiguousarray", "asfortranarray", "require", "ravel", "flatten"})
# Where what they are given is a constant, or read whenever a call runs.
_ALLOWED: Final = {
    ("conv_dense.py", "_copy"),
    ("copying.py", "as_contiguous"),
    ("elementwise.py", "_with_long_rows"),
    ("indexing.py", "gather"),
    ("matmul.py", "_operands"),
    ("stored.py", "to_bfloat16"),
}
_WIDE: Final = (3, 4, 8)


def _bound(*, constant: bool = False) -> Binding:
    wide = np.zeros(_WIDE, np.float32)
    return Binding(
        inputs=(np.zeros(_WIDE, np.float32)[:, :, :4],),
        outputs=(wide[:, :, :5],),
        input_dtypes=(DType.FLOAT32,),
        output_dtypes=(DType.FLOAT32,),
        attributes={},
        constant=(constant,),
        scratch=Scratch(),
        random=RandomState(0),
    )


def _flat_result(binding: Binding) -> Array:
    return binding.output().reshape(-1)


def _parts(binding: Binding) -> Array:
    return np.ravel(binding.output()[1:].transpose(1, 0, 2))


def _flat_operand(binding: Binding) -> Array:
    return binding.input(0).reshape(48)


def _temporary(binding: Binding) -> Array:
    return binding.scratch.take((4, 6), np.float32)[:, :3].reshape(12)


@pytest.mark.parametrize("reshaped", [_flat_result, _parts, _flat_operand, _temporary])
def test_copies_are_refused_when_kernels_are_bound(reshaped: Callable[[Binding], Array]) -> None:
    def kernel(binding: Binding) -> Calls:
        return partial(np.copyto, reshaped(binding), 1)

    with pytest.raises(ValueError, match=r"internal error: a tensor of shape .* without a copy"):
        prepare(kernel, _bound())


def test_views_and_copies_of_constants_are_not() -> None:
    def kernel(binding: Binding) -> Calls:
        flat, out = binding.input(0).reshape(-1), binding.output()
        return partial(np.copyto, out.reshape(3, 2, 2, 5), flat[0])

    binding = _bound(constant=True)
    for call in prepare(kernel, binding):
        call()


def test_calls_may_copy_operands_but_not_results() -> None:
    def reading(binding: Binding) -> Calls:
        return lambda: binding.output().fill(binding.input(0).reshape(-1).sum())

    def writing(binding: Binding) -> Calls:
        return lambda: binding.output().reshape(-1).fill(1)

    (call,) = prepare(reading, _bound())
    call()
    (call,) = prepare(writing, _bound())
    with pytest.raises(ValueError, match="without a copy"):
        call()


def test_what_is_computed_is_an_array_like_any_other() -> None:
    def kernel(binding: Binding) -> Calls:
        assert (binding.output() * 2).T.reshape(-1).size == 60
        return ()

    assert prepare(kernel, _bound()) == ()


def test_calls_hold_plain_arrays() -> None:
    """numpy's functions take longer for others."""

    def kernel(binding: Binding) -> Calls:
        out = binding.output()
        return partial(np.add, out, binding.input(0)[..., :1], out=out), partial(out.fill, 0)

    add, fill = prepare(kernel, _bound())
    assert isinstance(add, partial)
    assert isinstance(fill, partial)
    arrays: list[Any] = [*add.args, *add.keywords.values(), fill.func.__self__]  # type: ignore[attr-defined]
    assert [type(array) for array in arrays] == [np.ndarray] * 4


def test_merged_views_share_memory_or_there_are_none() -> None:
    wide = np.zeros(_WIDE, np.float32).view(Bound)
    assert merged_view(wide[:, :, :5], (12, 5)) is not None
    assert merged_view(wide[:, :, :5], (60,)) is None
    assert merged_view(wide[:0], (0, 7)) is not None


def _silent_copies(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of functions, and lines in them that may copy without saying so."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in _SILENT:
                    yield function.name, node.lineno


def test_no_kernel_copies_by_other_functions() -> None:
    folder = Path(popc_runtime.kernels.__file__).parent
    found = {
        (path.name, name): line
        for path in sorted(folder.rglob("*.py"))
        if path.name != "bound.py"
        for name, line in _silent_copies(ast.parse(path.read_text()))
    }
    assert found.keys() == _ALLOWED, found
