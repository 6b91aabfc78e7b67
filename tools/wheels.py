"""Build the wheels that are published, for every platform, on any Linux machine.

popc-runtime has one wheel for each kind of processor that it has native kernels for, compiled by
`zig cc` against an old glibc, and one without kernels for everything else; so has popc, for the
search of schedules.  popc-popart is one wheel.

The same commit gives the same bytes: times in wheels are that of the commit, or what
SOURCE_DATE_EPOCH says.  ``--again`` builds everything twice, and compares.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MACHINES: Final = ("x86_64", "aarch64")
GLIBC: Final = "2.17"
_LIBRARIES: Final = {
    "popc-runtime": "popc_runtime/native/_native.abi3.so",
    "popc": "popc/schedule/_native.abi3.so",
}
_NOT_SOURCES: Final = shutil.ignore_patterns("build", "*.egg-info", "*.so", "__pycache__")
_SOURCES: Final = {
    "popc": ("pyproject.toml", "setup.py", "README.md", "LICENSE", "popc"),
    "popc-popart": ("facade",),
    "popc-runtime": ("runtime",),
}
# What would be compiled for the machine that builds, and not for those of users.
_OF_THIS_MACHINE: Final = ("CFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS", "POPC_NATIVE")


def main() -> int:
    """Build all wheels into the folder that is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--again", action="store_true", help="build twice, and compare")
    given = parser.parse_args()
    wheels = all_wheels(given.folder.resolve())
    for wheel in wheels:
        print(f"{wheel.stat().st_size:>10,}  {wheel.name}")
    return compare(wheels) if given.again else 0


def compare(wheels: Sequence[Path]) -> int:
    """Build all wheels once more; 1 if one of them has other bytes."""
    with tempfile.TemporaryDirectory() as folder:
        second = {wheel.name: wheel.read_bytes() for wheel in all_wheels(Path(folder))}
    others = [wheel.name for wheel in wheels if second.get(wheel.name) != wheel.read_bytes()]
    print("\n".join(f"differs: {name}" for name in others) or "built twice: the same bytes")
    return 1 if others else 0


def all_wheels(target: Path) -> list[Path]:
    """The wheels of everything, in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    wheels: list[Path] = []
    for project in _LIBRARIES:
        wheels += [native_wheel(project, machine, target) for machine in MACHINES]
        wheels.append(build(project, target, {"POPC_NATIVE": "none"}))
    return [*wheels, build("popc-popart", target, {})]


def source_date() -> str:
    """The time that wheels give their files, in seconds: that of the commit."""
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if chosen:
        return chosen
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.check_output(command, text=True).strip()


def native_wheel(project: str, machine: str, target: Path) -> Path:
    """The wheel of ``project`` for Linux on ``machine``, tagged with what the system needs."""
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
    environment = {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }
    with tempfile.TemporaryDirectory() as folder:
        plain = build(project, Path(folder), environment)
        if _LIBRARIES[project] not in zipfile.ZipFile(plain).namelist():
            raise SystemExit(f"{plain.name}: the native library did not compile")
        retag = [sys.executable, "-m", "wheel", "tags", "--platform-tag", platform_tag(plain)]
        dated = {**os.environ, "SOURCE_DATE_EPOCH": source_date()}
        name = subprocess.check_output([*retag, plain], text=True, env=dated).split()[-1]
        return Path(shutil.copy(Path(folder) / name, target))


def platform_tag(wheel: Path) -> str:
    """The platform that auditwheel says ``wheel`` runs on; it must be as old as promised."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    report = subprocess.check_output(command, text=True, stderr=subprocess.STDOUT)
    found = re.search(r'"(manylinux_2_(\d+)_\w+)"', report)
    if found is None or int(found[2]) > int(GLIBC.removeprefix("2.")):
        raise SystemExit(f"{wheel.name} needs more than glibc {GLIBC}:\n{report}")
    return found[1]


def build(project: str, target: Path, environment: Mapping[str, str]) -> Path:
    """A wheel of ``project``, from a copy of its sources: what other builds left stays out."""
    outside = {key: value for key, value in os.environ.items() if key not in _OF_THIS_MACHINE}
    outside["SOURCE_DATE_EPOCH"] = source_date()
    with tempfile.TemporaryDirectory() as folder:
        for name in _SOURCES[project]:
            _copy(ROOT / name, Path(folder) / name)
        made = Path(folder) / "made"
        source = Path(folder) / ("." if project == "popc" else _SOURCES[project][0])
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(made), str(source)]
        done = subprocess.run(
            command, env={**outside, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{project} does not build:\n{done.stdout}{done.stderr}")
        (wheel,) = made.glob("*.whl")
        return Path(shutil.copy(wheel, target))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_NOT_SOURCES)
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    sys.exit(main())
