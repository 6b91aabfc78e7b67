"""Chains of elementwise steps as one kernel: the same bits as one instruction after another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, prepare
from popc_runtime.kernels.parts.fused_steps import STEP_OPCODES, FusedStep, written
from popc_runtime.native import Library, NativeFailure, NativeProgram, Record, native_opcodes
from popc_runtime.native.record import tensor_words
from popc_runtime.native.views import as_view
from tests.native.bindings import bound, encode
from tests.support.fused_programs import Chain, chains, channels_last

# The opcodes that are tested here.
FUSED: Final = frozenset({"FusedElementwise"})

_EACH: Final = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _alone(chain: Chain, library: Library | None) -> Array:
    """The result of one instruction after another; numpy's without a library."""
    values = list(chain.inputs)
    for number, step in enumerate(chain.steps):
        out = np.zeros(chain.shape, step.dtype.storage)
        constant = [at for at, operand in enumerate(step.operands) if operand in chain.constant]
        types = [*(chain.types[operand] for operand in step.operands), step.dtype]
        binding = bound(
            [values[operand] for operand in step.operands], [out], step.attributes, constant, types
        )
        if library is None:
            with np.errstate(all="ignore"):
                for call in prepare(KERNELS[step.opcode], binding):
                    call()
        elif out.size:
            record = encode(step.opcode, binding, library.numbers)
            assert record is not None, f"step {number}, {step}, has no native form"
            NativeProgram(library, [record], binding, 1).run()
        values.append(out)
    return values[-1]


def _together(chain: Chain, library: Library | None, out: Array, threads: int = 1) -> Array:
    types = [*chain.dtypes, chain.steps[-1].dtype]
    binding = bound(chain.inputs, [out], chain.attributes, chain.constant, types)
    if library is None:
        with np.errstate(all="ignore"):
            for call in prepare(KERNELS["FusedElementwise"], binding):
                call()
        return out
    record = encode("FusedElementwise", binding, library.numbers)
    assert record is not None
    assert record.kernel == "FusedMaps"
    NativeProgram(library, [record], binding, threads).run()
    return out


@_EACH
@given(chain=chains())
def test_steps_in_blocks_give_what_they_give_alone(library: Library, chain: Chain) -> None:
    expected = _alone(chain, library)
    for threads in (1, 2):
        assert _together(chain, library, chain.out(), threads).tobytes() == expected.tobytes()
    last = channels_last(chain.out())
    assert np.ascontiguousarray(_together(chain, library, last)).tobytes() == expected.tobytes()


@_EACH
@given(chain=chains())
def test_numpy_gives_the_same_in_blocks(chain: Chain) -> None:
    assert _together(chain, None, chain.out()).tobytes() == _alone(chain, None).tobytes()


_F32: Final = DType.FLOAT32


def _program(count: int) -> tuple[FusedStep, ...]:
    """x + x, and so on, of the value before."""
    return tuple(FusedStep("Add", (number, number), _F32, {}) for number in range(count))


def test_a_result_may_lie_where_any_operand_was(library: Library) -> None:
    x, y = (np.random.default_rng(seed).standard_normal(3000).astype(np.float32) for seed in (0, 1))
    steps = (FusedStep("Sub", (0, 1), _F32, {}), FusedStep("Sub", (2, 1), _F32, {}))
    for used in (library, None):
        for place in (0, 1):
            inputs = [x.copy(), y.copy()]
            chain = Chain(tuple(inputs), (_F32, _F32), (), steps, (3000,))
            out = _together(chain, used, inputs[place])
            assert out.tobytes() == ((x - y) - y).tobytes()


@pytest.mark.parametrize(
    ("shape", "first", "second"),
    [
        ((300, 16, 3), (16, 1), (16, 3)),
        ((300, 16, 3), (3,), (16, 1)),
        ((40, 31, 33), (31, 1), (33,)),
        ((40, 31, 33), (1, 1, 33), (40, 1, 1)),
        ((7, 5, 4, 17), (5, 1, 17), (4, 1)),
        ((500, 2, 600), (2, 1), (600,)),
    ],
)
def test_operands_that_begin_again(
    library: Library, shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    """Blocks hold whole periods of those that do so after a few rows."""
    arrays = [
        np.random.default_rng(seed).integers(-99, 99, sizes).astype(np.float32)
        for seed, sizes in enumerate((shape, first, second))
    ]
    steps = (FusedStep("Mul", (0, 1), _F32, {}), FusedStep("Add", (3, 2), _F32, {}))
    inputs = tuple(np.broadcast_to(array, shape) for array in arrays)
    chain = Chain(inputs, (_F32,) * 3, (), steps, shape)
    wanted = arrays[0] * arrays[1] + arrays[2]  # whole numbers, of which none is rounded
    for threads in (1, 2):
        np.testing.assert_array_equal(_together(chain, library, chain.out(), threads), wanted)


def test_nothing_to_do_where_there_are_no_elements(library: Library) -> None:
    chain = Chain((np.zeros((3, 0), np.float32),), (_F32,), (), _program(2), (3, 0))
    assert _together(chain, None, chain.out()).size == 0
    binding = bound(chain.inputs, [chain.out()], chain.attributes)
    assert encode("FusedElementwise", binding, library.numbers) is None


def test_programs_of_many_maps_run_one_by_one(library: Library) -> None:
    """Each sum of five operands is four maps."""
    steps = tuple(FusedStep("Sum", (number,) * 6, _F32, {}) for number in range(22))
    chain = Chain((np.full(5, 1e-9, np.float32),), (_F32,), (), steps, (5,))
    out = chain.out()
    binding = bound(chain.inputs, [out], chain.attributes)
    record = encode("FusedElementwise", binding, library.numbers)
    assert record is not None
    assert record.kernel != "FusedMaps"
    NativeProgram(library, [record], binding, 1).run()
    assert out.tobytes() == _alone(chain, library).tobytes()


def test_all_opcodes_of_steps_have_a_native_form() -> None:
    assert native_opcodes() >= STEP_OPCODES


_GOOD: Final = written((FusedStep("Add", (0, 0), _F32, {}),))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"steps": ()},
        {"steps": ("Add", "Add")},
        {"steps": ("MatMul",)},
        {"steps": ("FusedElementwise",)},
        {"steps": 3},
        {"dtypes": ("float33",)},
        {"arities": (1,)},
        {"arities": (-1,)},
        {"arities": (0,), "operands": ()},
        {"operands": (0, 1)},
        {"operands": (0, -1)},
        {"operands": ("x", "y")},
        written(_program(25)),
    ],
)
def test_attributes_that_are_no_program(library: Library, spoilt: dict[str, Any]) -> None:
    x = np.ones(3, np.float32)
    binding = bound([x], [np.empty(3, np.float32)], {**_GOOD, **spoilt})
    with pytest.raises(ValueError):  # noqa: PT011 - several texts
        encode("FusedElementwise", binding, library.numbers)
    with pytest.raises(ValueError):  # noqa: PT011
        prepare(KERNELS["FusedElementwise"], binding)


def _words(out: Array, *numbers: int) -> tuple[int, ...]:
    return (1, *tensor_words(as_view(out)), *numbers)


@pytest.mark.parametrize(
    ("slots", "step"),
    [
        ((4,), (1, 2)),  # what is read is no slot
        ((4,), (1, -1)),
        ((4,), (1, 0)),  # the result is read
        ((8,), (0, 1)),  # elements of other sizes
        ((3,), (0, 1)),
        ((4,) * 25, (0, 1)),
    ],
)
def test_records_that_do_not_fit(
    library: Library, slots: tuple[int, ...], step: tuple[int, int]
) -> None:
    out = np.zeros(5, np.float32)
    relu = library.numbers["Relu_f32"]

    def program(slots: tuple[int, ...], kernel: int, step: tuple[int, int]) -> NativeProgram:
        tensors = (word for reference in step for word in (1 + reference, 0, 0, 0))
        words = _words(out, len(slots), *slots, 1, kernel, *tensors, 0, 0, 0)
        return NativeProgram(library, [Record("FusedMaps", words)], out, 1)

    program((4,), relu, (0, 1)).run()
    with pytest.raises(NativeFailure):
        program(slots, relu, step)
    for name in ("FusedMaps", "Product_f32"):
        with pytest.raises(NativeFailure):
            program((4,), library.numbers[name], (0, 1))
    with pytest.raises(NativeFailure):
        program((4,), 1 << 40, (0, 1))
