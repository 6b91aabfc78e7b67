"""The native library, for every kind of processor that this machine is."""

from __future__ import annotations

import pytest

from popc_runtime.native import Library, find_library, why_missing
from popc_runtime.native.library import variants


@pytest.fixture(params=variants() or ["none"])
def library(request: pytest.FixtureRequest) -> Library:
    """Each kind of kernels that runs here."""
    found = find_library(request.param) if variants() else None
    if found is None:
        pytest.skip(f"there are no native kernels: {why_missing()}")
    return found
