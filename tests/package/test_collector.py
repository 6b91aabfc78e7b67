"""The collector of cycles rests while a program is compiled, and goes on as before."""

from __future__ import annotations

import gc

import pytest

from popc.collector import without_collector


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_as_before_afterwards(*, was_enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if was_enabled else gc.disable)()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert gc.isenabled() is was_enabled
        with pytest.raises(KeyError), without_collector():
            raise KeyError
        assert gc.isenabled() is was_enabled
    finally:
        (gc.enable if before else gc.disable)()
