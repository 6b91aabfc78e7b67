"""Stretches of memory, against a look at every pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from popc_runtime.device.extents import Extents

_STRETCHES = st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda s: (s[0], s[0] + s[1]))


@given(stretches=st.lists(_STRETCHES, max_size=6), asked=_STRETCHES)
def test_they_are_met_where_one_of_them_is(
    stretches: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    wanted = set(range(*asked))
    assert Extents(stretches).meet(*asked) == any(wanted & set(range(*each)) for each in stretches)
