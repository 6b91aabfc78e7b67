"""The command imports numpy without its descriptions; all else of numpy is there."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

_COMMON = """
import sys
from popc.cli.bare_numpy import importing_bare_numpy
with importing_bare_numpy():
    import numpy
"""


def _printed(code: str) -> str:
    """What a new process prints: here numpy has been imported long ago."""
    command = [sys.executable, "-W", "error", "-c", _COMMON + code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _knows_this_numpy() -> bool:
    return np.__version__.startswith("2.4.")


def test_numpy_has_all_its_names() -> None:
    names = sorted(name for name in dir(np) if not name.startswith("_"))
    found = _printed("print(*sorted(name for name in dir(numpy) if not name.startswith('_')))")
    # What has been imported since is named here too.
    assert set(found.split()) <= set(names)
    lazily = {"char", "core", "ctypeslib", "exceptions", "f2py", "fft", "ma", "polynomial", "rec"}
    lazily |= {"random", "strings", "testing", "typing", "test"}
    assert set(names) - set(found.split()) <= lazily


def test_types_are_the_real_ones_for_who_imports_them_later() -> None:
    code = "import numpy.typing as npt; print(npt.NDArray[numpy.float32], npt.ArrayLike)"
    import numpy.typing as npt

    assert _printed(code) == f"{npt.NDArray[np.float32]} {npt.ArrayLike}"


def test_masked_arrays_can_be_made() -> None:
    """They compose their docs of numpy's."""
    assert _printed("import numpy.ma; print(numpy.ma.masked_equal([1, 2], 2).sum())") == "1"


@pytest.mark.skipif(not _knows_this_numpy(), reason="this release of numpy is imported whole")
def test_docs_are_left_out_as_without_docstrings() -> None:
    assert _printed("print(numpy.add.__doc__ is None, numpy.ndarray.shape.__doc__)") == "False None"
    assert _printed("print('numpy._typing' in sys.modules)") == "False"


def test_other_releases_are_imported_whole() -> None:
    code = """
import subprocess, sys
code = '''
import popc.cli.bare_numpy as bare, sys
bare._KNOWN = ("0.",)
with bare.importing_bare_numpy():
    import numpy
print("numpy._typing" in sys.modules)
'''
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
"""
    assert _printed(code) == "True"
