"""An LSTM goes back through time in one instruction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.kernels.parts.lstm_steps import LstmSteps, lstm_steps
from popc_runtime.native import Library, NativeProgram
from popc_runtime.native.translation import translate


def _steps(steps: int, batch: int, hidden: int, backward: tuple[bool, ...]) -> LstmSteps:
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> Array:
        return random.uniform(-0.5, 0.5, shape).astype(np.float32)

    count = len(backward)
    return LstmSteps(
        r=numbers(count, 4 * hidden, hidden),
        gates=numbers(5, count, steps, batch, hidden),
        cells=numbers(count, steps + 1, batch, hidden),
        given=numbers(steps, count, batch, hidden),
        rows=numbers(count, steps * batch, 4 * hidden),
        dh=numbers(count, batch, hidden),
        dc=numbers(count, batch, hidden),
        backward=backward,
        first=True,
    )


def _expected(s: LstmSteps) -> list[Array]:
    """Derivatives of the standard's formulas: rows, dh and dc."""
    wide = [array.astype(np.float64) for array in (s.r, s.gates, s.cells, s.dh, s.dc)]
    r, gates, cells, dh, dc = wide
    _, count, steps, batch, hidden = s.gates.shape
    rows = np.empty((count, steps, batch, 4 * hidden))
    for d, step in ((d, step) for d in range(count) for step in reversed(range(steps))):
        time = steps - 1 - step if s.backward[d] else step
        i, o, f, g, shown = gates[:, d, time]
        if s.given is not None:
            dh[d] += s.given[time, d]
        dc[d] += dh[d] * o * (1 - shown**2)
        before = cells[d, time + s.backward[d]]
        slopes = [dc[d] * g * i * (1 - i), dh[d] * shown * o * (1 - o)]
        slopes += [dc[d] * before * f * (1 - f), dc[d] * i * (1 - g**2)]
        rows[d, time] = np.concatenate(slopes, -1)
        dh[d], dc[d] = rows[d, time] @ r[d], dc[d] * f
    return [rows.reshape(s.rows.shape), dh, dc]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("backward", [(False,), (True,), (False, True)])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"),
    [(3, 1, 16), (2, 1, 7), (3, 4, 32), (2, 5, 9), (2, 13, 16), (2, 27, 40), (1, 64, 70)],
)
def test_all_steps(
    library: Library,
    steps: int,
    batch: int,
    hidden: int,
    backward: tuple[bool, ...],
    *,
    given: bool,
) -> None:
    problem = _steps(steps, batch, hidden, backward)
    if not given:
        problem = replace(problem, given=None)
    expected = _expected(problem)
    found = []
    for threads in (1, 3):
        results = {name: getattr(problem, name).copy() for name in ("rows", "dh", "dc")}
        record = translate(partial(lstm_steps, (), replace(problem, **results)), library.numbers)
        assert record is not None
        NativeProgram(library, [record], results, threads).run()
        found.append(list(results.values()))
    for alone, shared, right in zip(*found, expected, strict=True):
        np.testing.assert_array_equal(alone, shared)
        np.testing.assert_allclose(alone, right, rtol=1e-4, atol=1e-4)


def test_the_first_state_has_no_gradient_unless_it_is_wanted(library: Library) -> None:
    problem = replace(_steps(3, 4, 32, (False, True)), first=False)
    rows, _, dc = _expected(problem)
    results = {name: getattr(problem, name).copy() for name in ("rows", "dh", "dc")}
    record = translate(partial(lstm_steps, (), replace(problem, **results)), library.numbers)
    assert record is not None
    NativeProgram(library, [record], results, 1).run()
    np.testing.assert_allclose(results["rows"], rows, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results["dc"], dc, rtol=1e-4, atol=1e-4)
