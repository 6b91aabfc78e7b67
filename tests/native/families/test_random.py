"""Random numbers drawn by native kernels: bit for bit those of the numpy engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, prepare
from popc_runtime.kernels.core.stored import to_bfloat16
from popc_runtime.native import Library, Loop, NativeProgram
from tests.native.bindings import bound, encode, native_results, numpy_results

DRAWN = frozenset(
    {
        *("Dropout", "DropoutGrad", "Multinomial", "RandomNormal", "RandomSeed", "RandomUniform"),
        "SeededDropout",
    }
)

_TRAINING: Final = np.ones((), np.bool_)
_EXAMPLES: Final = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
_Case = tuple[Callable[[], None], RandomState, Sequence[Array]]


def _dropout(
    random: RandomState, attributes: dict[str, Any], ratio: float = 0.3, dtype: Any = np.float32
) -> Binding:
    x = np.random.default_rng(0).standard_normal((7, 401)).astype(np.float32)
    x[0, :4] = np.nan, np.inf, -np.inf, -0.0
    outputs = [np.empty_like(x), np.empty(x.shape, np.bool_)]
    binding = bound([x, np.asarray(ratio, dtype), _TRAINING], outputs, attributes)
    return replace(binding, random=random)


def _by_numpy(binding: Binding, opcode: str = "Dropout") -> Callable[[], None]:
    calls = prepare(KERNELS[opcode], binding)

    def run() -> None:
        with np.errstate(all="ignore"):
            for call in calls:
                call()

    return run


def _natively(
    library: Library, binding: Binding, opcode: str = "Dropout", threads: int = 2
) -> Callable[[], None]:
    record = encode(opcode, binding, library.numbers)
    assert record is not None
    return NativeProgram(library, [record], binding, threads).run


def _bytes(binding: Binding) -> list[bytes]:
    return [result.tobytes() for result in binding.outputs if result is not None]


@pytest.mark.parametrize("replica", [0, 3])
@pytest.mark.parametrize("attributes", [{}, {"seed": 5}])
def test_runs_draw_on_and_seeding_restarts(
    library: Library, attributes: dict[str, Any], replica: int
) -> None:
    first = _dropout(RandomState(4, replica), attributes)
    second = _dropout(RandomState(4, replica), attributes)
    expected, found = _by_numpy(first), _natively(library, second)
    seen: list[list[bytes]] = []
    for step in range(5):
        if step == 3:
            first.random.seed(4)
            second.random.seed(4)
        expected()
        found()
        assert _bytes(first) == _bytes(second)
        seen.append(_bytes(first))
    assert seen[0] == seen[3]
    assert seen[0] != seen[1]
    assert first.random.save() == second.random.save()


@pytest.mark.parametrize("attributes", [{}, {"seed": 5}])
def test_saved_states_go_from_engine_to_engine(
    library: Library, attributes: dict[str, Any]
) -> None:
    bindings = [_dropout(RandomState(seed), attributes) for seed in (1, 1, 2, 3)]
    runs = [
        _by_numpy(bindings[0]),
        _natively(library, bindings[1]),
        _by_numpy(bindings[2]),
        _natively(library, bindings[3]),
    ]
    runs[0]()
    runs[1]()
    states = [binding.random.save() for binding in bindings[:2]]
    bindings[2].random.restore(states[1])  # numpy goes on from the native engine
    bindings[3].random.restore(states[0])  # and the other way round
    for run in runs:
        run()
    assert _bytes(bindings[0]) == _bytes(bindings[1]) == _bytes(bindings[2]) == _bytes(bindings[3])


def test_a_state_without_draws_is_restored(library: Library) -> None:
    fresh, binding = RandomState(9), _dropout(RandomState(1), {})
    run = _natively(library, binding)
    run()
    binding.random.restore(fresh.save())
    run()
    expected = _dropout(RandomState(9), {})
    _by_numpy(expected)()
    assert _bytes(binding) == _bytes(expected)


def test_a_state_that_cannot_be_restored_leaves_numbers_to_draw(library: Library) -> None:
    binding, expected = _dropout(RandomState(1), {}), _dropout(RandomState(1), {})
    run = _natively(library, binding)
    state = binding.random.save()
    with pytest.raises((ValueError, TypeError, LookupError)):
        binding.random.restore({**state, "drawn": {"bit_generator": "Other"}})
    run()
    _by_numpy(expected)()
    assert _bytes(binding) == _bytes(expected)


def test_numbers_in_loops(library: Library) -> None:
    first, second = _dropout(RandomState(0), {}), _dropout(RandomState(0).numbered(3), {})
    first = replace(first, random=RandomState(0).numbered(3))
    record = encode("Dropout", second, library.numbers)
    assert record is not None
    NativeProgram(library, [Loop([record], 6)], second, 2).run()
    run = _by_numpy(first)
    for _ in range(6):
        run()
    assert _bytes(first) == _bytes(second)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("attributes", [{}, {"seed": 5}])
@pytest.mark.parametrize("training", [True, False])
def test_dropout(
    library: Library, *, attributes: dict[str, Any], ratio: float, dtype: Any, training: bool
) -> None:
    pair = [_dropout(RandomState(0), attributes, ratio, dtype) for _ in range(2)]
    mode = np.asarray(training)
    first, second = (replace(item, inputs=(*item.inputs[:2], mode)) for item in pair)
    _by_numpy(first)()
    _natively(library, second)()
    assert _bytes(first) == _bytes(second)


def test_dropout_without_a_mask(library: Library) -> None:
    first, second = (
        replace(item, outputs=(item.outputs[0],), output_dtypes=(DType.FLOAT32,))
        for item in (_dropout(RandomState(0), {}), _dropout(RandomState(0), {}))
    )
    _by_numpy(first)()
    _natively(library, second)()
    assert _bytes(first) == _bytes(second)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 8191, 8192, 3 * 8192 + 5])
def test_dropout_by_a_seed(
    library: Library, *, count: int, ratio: float, dtype: Any, mask: bool
) -> None:
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    x[: min(count, 4)] = (np.nan, np.inf, -np.inf, -0.0)[:count]
    outputs = [np.empty_like(x), *([np.empty(x.shape, np.bool_)] if mask else [])]
    for seed in ([5, 0], [2**32 - 1, 2**31 + 3]):
        inputs = [x, np.asarray(ratio, dtype), _TRAINING, np.array(seed, np.uint32)]
        expected = numpy_results("SeededDropout", inputs, outputs, {})
        for threads in (1, 2):
            found = native_results(library, "SeededDropout", inputs, outputs, {}, (), threads)
            assert found is not None
            assert [item.tobytes() for item in found] == [item.tobytes() for item in expected]


def test_dropout_by_a_seed_in_place(library: Library) -> None:
    x = np.random.default_rng(0).standard_normal((30, 41)).astype(np.float32)
    seed = np.array([1, 2], np.uint32)
    inputs = [x, np.asarray(0.4, np.float32), _TRAINING, seed]
    (expected,) = numpy_results("SeededDropout", inputs, [np.empty_like(x)], {})
    binding = bound([x, *inputs[1:]], [x], {})
    record = encode("SeededDropout", binding, library.numbers)
    assert record is not None
    NativeProgram(library, [record], binding, 2).run()
    np.testing.assert_array_equal(x, expected)


def test_seeds(library: Library) -> None:
    """Whatever was drawn before: a number of 32 bits may wait in numpy's generator."""
    outputs = [np.empty(2, np.uint32)]
    first, second = (
        replace(bound([], [item.copy() for item in outputs], {}), random=RandomState(3))
        for _ in range(2)
    )
    runs = [_by_numpy(first, "RandomSeed"), _natively(library, second, "RandomSeed")]
    seen = set()
    for step in range(4):
        for binding, run in zip((first, second), runs, strict=True):
            if step % 2:
                binding.random.generator.random(dtype=np.float32)
            run()
        assert _bytes(first) == _bytes(second)
        seen.add(_bytes(first)[0])
    assert len(seen) == 4


@_EXAMPLES
@given(
    shape=st.lists(st.integers(1, 40), max_size=3).map(tuple),
    ratio=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_gradients_of_dropout(library: Library, shape: tuple[int, ...], ratio: float) -> None:
    random = np.random.default_rng(0)
    g = random.standard_normal(shape).astype(np.float32)
    mask = random.random(shape) < 0.5
    inputs = [g, np.asarray(mask), np.asarray(ratio, np.float32), _TRAINING]
    outputs = [np.empty_like(g)]
    expected = numpy_results("DropoutGrad", inputs, outputs, {})
    for threads in (1, 2):
        found = native_results(library, "DropoutGrad", inputs, outputs, {}, (), threads)
        assert found is not None
        assert found[0].tobytes() == expected[0].tobytes()


def test_gradients_of_many_elements(library: Library) -> None:
    random = np.random.default_rng(0)
    g = random.standard_normal(100_003).astype(np.float32)
    g[:4] = np.nan, np.inf, -np.inf, -0.0
    inputs = [g, random.random(g.size) < 0.5, np.asarray(0.3, np.float32), _TRAINING]
    expected = numpy_results("DropoutGrad", inputs, [g], {})
    for threads in (1, 2):
        found = native_results(library, "DropoutGrad", inputs, [g], {}, (), threads)
        assert found is not None
        assert found[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("limits", [(0.0, 1.0), (-2.5, 4.0), (0.0, 3.0), (1.0, 2.0), (-3e38, 3e38)])
@pytest.mark.parametrize("seed", [{}, {"seed": -6}])
def test_uniform(
    library: Library, dtype: DType, limits: tuple[float, float], seed: dict[str, Any]
) -> None:
    attributes = {"shape": (3, 1001), "to": dtype.value, "low": limits[0], "high": limits[1]} | seed
    outputs = [np.empty((3, 1001), dtype.storage)]
    expected = numpy_results("RandomUniform", [], outputs, attributes, dtypes=[dtype])
    found = native_results(library, "RandomUniform", [], outputs, attributes, dtypes=[dtype])
    assert found is not None
    assert found[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("moments", [(0.0, 1.0), (-2.5, 4.0), (3.0, 1.0)])
@pytest.mark.parametrize("seed", [{}, {"seed": -6}])
def test_normal(
    library: Library, dtype: DType, moments: tuple[float, float], seed: dict[str, Any]
) -> None:
    """Also in the tails, which are drawn otherwise."""
    attributes = {"shape": (3, 30001), "to": dtype.value, "mean": moments[0], "scale": moments[1]}
    outputs = [np.empty((3, 30001), dtype.storage)]
    expected = numpy_results("RandomNormal", [], outputs, attributes | seed, dtypes=[dtype])
    found = native_results(library, "RandomNormal", [], outputs, attributes | seed, dtypes=[dtype])
    assert found is not None
    assert found[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("seed", [{}, {"seed": -6}])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (40, 300)])
def test_choices_among_classes(
    library: Library, shape: tuple[int, int], seed: dict[str, Any], dtype: str
) -> None:
    logits = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3
    outputs = [np.empty((shape[0], 500), dtype)]
    for laid in (logits, np.ascontiguousarray(logits.T).T):
        expected = numpy_results("Multinomial", [laid], outputs, seed)
        found = native_results(library, "Multinomial", [laid], outputs, seed)
        assert found is not None
        assert found[0].tobytes() == expected[0].tobytes()


def test_dropout_of_bfloat16(library: Library) -> None:
    x = to_bfloat16(np.random.default_rng(0).standard_normal((5, 60)).astype(np.float32))
    outputs = [np.empty_like(x), np.empty(x.shape, np.bool_)]
    inputs = [x, np.asarray(0.3, np.float32), _TRAINING]
    types = [DType.BFLOAT16, DType.FLOAT32, DType.BOOL, DType.BFLOAT16, DType.BOOL]
    expected = numpy_results("Dropout", inputs, outputs, {}, dtypes=types)
    found = native_results(library, "Dropout", inputs, outputs, {}, dtypes=types)
    assert found is not None
    assert [got.tobytes() for got in found] == [item.tobytes() for item in expected]


def test_forms_that_numpy_computes(library: Library) -> None:
    x = np.ones((4, 6), np.float32)
    ratio = np.asarray(0.5, np.float32)
    for item in (x.T, x.astype(np.float16), x[:0]):
        inputs = [item, ratio, _TRAINING]
        outputs = [np.empty(inputs[0].shape, inputs[0].dtype)]
        assert native_results(library, "Dropout", inputs, outputs, {"seed": 1}) is None
