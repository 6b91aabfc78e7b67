"""Build the wheels and source distributions that are published, on any Linux machine.

popc-runtime has one wheel for each kind of processor that it has native kernels for, compiled by
`zig cc` against an old glibc, and one without kernels for everything else; so has popc, for the
search of schedules.  popc-popart is one wheel.  Wheels for musl and macOS come from cibuildwheel
(RELEASING.md).

The same commit gives the same bytes: times in files are that of the commit, or what
SOURCE_DATE_EPOCH says.  ``--again`` builds everything twice, and compares.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
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
    "popc": ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "popc"),
    "popc-popart": ("facade",),
    "popc-runtime": ("runtime",),
}
# What would be compiled for the machine that builds, and not for those of users.
_OF_THIS_MACHINE: Final = ("CFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS", "POPC_NATIVE")


def main() -> int:
    """Build everything into the folder that is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--again", action="store_true", help="build twice, and compare")
    given = parser.parse_args()
    files = all_files(given.folder.resolve())
    for file in files:
        print(f"{file.stat().st_size:>10,}  {file.name}")
    return compare(files) if given.again else 0


def compare(files: Sequence[Path]) -> int:
    """Build everything once more; 1 if a file has other bytes."""
    with tempfile.TemporaryDirectory() as folder:
        second = {file.name: file.read_bytes() for file in all_files(Path(folder))}
    others = [file.name for file in files if second.get(file.name) != file.read_bytes()]
    print("\n".join(f"differs: {name}" for name in others) or "built twice: the same bytes")
    return 1 if others else 0


def all_files(target: Path) -> list[Path]:
    """The wheels and source distributions of everything, in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    wheels: list[Path] = []
    for project in _LIBRARIES:
        wheels += [native_wheel(project, machine, target) for machine in MACHINES]
        wheels.append(build(project, target, {"POPC_NATIVE": "none"}))
    wheels.append(build("popc-popart", target, {}))
    return wheels + [source_distribution(project, target) for project in _SOURCES]


def source_distribution(project: str, target: Path) -> Path:
    """The sources of ``project`` as a .tar.gz, whose files have the time of the commit."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(project, Path(folder), {}, "sdist")
        packed = io.BytesIO()
        with (
            tarfile.open(made) as old,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member in sorted(old.getmembers(), key=lambda each: each.name):
                member.mtime, member.mode = int(source_date()), 0o755 if member.isdir() else 0o644
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.pax_headers = {}
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
    path = target / made.name
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=int(source_date())))
    return path


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


def build(project: str, target: Path, environment: Mapping[str, str], kind: str = "wheel") -> Path:
    """A wheel or "sdist" of ``project``, from a copy of its sources without leftovers of others."""
    outside = {key: value for key, value in os.environ.items() if key not in _OF_THIS_MACHINE}
    outside["SOURCE_DATE_EPOCH"] = source_date()
    with tempfile.TemporaryDirectory() as folder:
        for name in _SOURCES[project]:
            _copy(ROOT / name, Path(folder) / name)
        made = Path(folder) / "made"
        source = Path(folder) / ("." if project == "popc" else _SOURCES[project][0])
        command = [sys.executable, "-m", "build", f"--{kind}", "--outdir", str(made), str(source)]
        done = subprocess.run(
            command, env={**outside, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{project} does not build:\n{done.stdout}{done.stderr}")
        (file,) = made.iterdir()
        return Path(shutil.copy(file, target))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_NOT_SOURCES)
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    sys.exit(main())
