"""Build the compiler's search in C, if there is a C compiler: without it Python does the same."""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup

_SOURCES = (
    *("bound", "exact", "flow", "gains", "kahn", "links", "lists", "merge", "module", "reached"),
    *("reduce", "rooms", "shift", "steps"),
)
_HEADERS = ("bound", "exact", "flow", "links", "lists", "merge", "reached", "search", "shift")


def library() -> Extension:
    """The module; a build that fails leaves a package that searches in Python."""
    return Extension(
        "popc.schedule._native",
        [f"popc/schedule/csrc/{name}.c" for name in _SOURCES],
        depends=[f"popc/schedule/csrc/{name}.h" for name in _HEADERS],
        extra_compile_args=["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-O2"],
        extra_link_args=["-s"] if sys.platform == "linux" else [],
        py_limited_api=True,
        optional=True,
    )


if __name__ == "__main__":
    if os.environ.get("POPC_NATIVE") == "none":  # a wheel for any platform
        setup()
    else:
        setup(
            ext_modules=[library()],
            options={"bdist_wheel": {"py_limited_api": "cp311"}},
        )
