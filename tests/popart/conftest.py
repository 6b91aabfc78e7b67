"""PopART's log stays quiet: what tests provoke would fill pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from popc.popart import getLogger


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    getLogger().setLevel("OFF")
    yield
    getLogger().setLevel("WARN")
