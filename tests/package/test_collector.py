"""The collector of cycles rests while a program is compiled, and goes on as before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

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


_VARIABLE = "OPENBLAS_THREAD_TIMEOUT"


@pytest.mark.parametrize("said", ["", "7"])
def test_the_patience_of_threads_is_set_while_numpy_is_imported(said: str) -> None:
    # numpy is new only in a new process.
    code = f"""
import os, sys
from popc.collector import importing
before = os.environ.get({_VARIABLE!r})
assert "numpy" not in sys.modules
with importing("popc.api"):
    import numpy
    meanwhile = os.environ.get({_VARIABLE!r})
assert os.environ.get({_VARIABLE!r}) == before
print(meanwhile)
"""
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    if said:
        environment[_VARIABLE] = said
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == (said or "20")
