"""Run the tests of native kernels on a library that was built with a sanitizer.

python -m tests.native.sanitized LIBRARY [ARGUMENTS OF PYTEST]...
"""

from __future__ import annotations

import importlib.util
import sys

import pytest

_NAME = "popc_runtime.native._native"


def main(path: str, arguments: list[str]) -> int:
    """Put the library in the place of the installed one, then run pytest."""
    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return int(pytest.main(["-q", "-s", "-p", "no:cacheprovider", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
