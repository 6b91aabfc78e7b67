"""popc doctor."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import click

from popc.cli.report import Report, format_table
from popc_runtime.native import find_library, variants, wanted_variant, why_missing

__all__ = ["command"]

_REQUIRED = ("popc", "popc-runtime", "numpy", "onnx", "msgpack", "zstandard", "click")
_OPTIONAL = ("onnxruntime", "pillow")


@click.command("doctor")
def command() -> Report:
    """Show versions, and what this machine offers.  Exits with 1 if a package is missing.

    \b
    popc doctor
    popc --format json doctor
    """
    from popc.schedule.flat import why_missing as why_missing_search

    packages = {name: _version(name) for name in (*_REQUIRED, *_OPTIONAL)}
    missing = [name for name in _REQUIRED if packages[name] is None]
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    library = find_library()
    engine = library.variant if library else "numpy"
    said = ", as POPC_NATIVE says" if wanted_variant() else ""
    why_slow = why_missing_search()
    data = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "processors": threads,
        "engine": engine,
        "search": "python" if why_slow else "native",
        "native_kernels": list(variants()),
        "packages": packages,
        "missing": missing,
    }
    rows = [
        ["python", platform.python_version()],
        ["machine", f"{platform.system()} {platform.machine()}, {threads} processors"],
        ["engine", f"native, for {engine}{said}" if library else f"numpy: {why_missing()}"],
        ["search of schedules", f"Python: {why_slow}" if why_slow else "native"],
        *([name, found or "not installed"] for name, found in packages.items()),
    ]
    rows.append(["verdict", f"missing: {', '.join(missing)}" if missing else "all is well"])
    return Report("doctor", data, format_table(rows), exit_code=1 if missing else 0)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
