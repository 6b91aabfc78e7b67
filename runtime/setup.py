"""Build the native kernels, if there is a compiler: without them the runtime computes with numpy.

The kernels are compiled once for each kind of processor; the module chooses when it is loaded.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from sysconfig import get_platform

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = (
    *("module", "direct", "spares", "processor", "program", "landings"),
    *("trial", "pool", "cores", "sha256"),
)
FLAGS = [
    *("-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra"),
    *("-Wno-unknown-pragmas", "-Wno-pass-failed"),
]
# Vector code for loops with conditions needs to know that exceptions do not matter.  Compilers that
# join neighbouring operations of straight code take products from the sums that they are part of:
# what is left of a vector would be rounded otherwise than the vector.  Python asks for integers
# that wrap around, as it is compiled itself: loops over offsets would take a tenth longer.
FAST = [
    *("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fno-tree-slp-vectorize", "-fno-wrapv"),
]
SYSTEMS = ("linux", "macosx")
VARIANTS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        # What csrc/module.c asks the processor for.
        "V3": ["-mavx2", "-mfma", "-mf16c", "-mbmi2"],
        "V4": [
            *("-mavx2", "-mfma", "-mf16c", "-mbmi2"),
            *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
            "-mprefer-vector-width=512",
        ],
    },
    "aarch64": {"BASELINE": []},
}
VARIANTS["arm64"] = VARIANTS["aarch64"]  # macOS calls it so


def variants() -> dict[str, list[str]]:
    """The kinds of processors of what is built for, with the compiler's arguments for each."""
    system, *_, machine = get_platform().split("-")
    return VARIANTS.get(machine, {}) if system in SYSTEMS else {}


class BuildKernels(build_ext):
    """Compiles every file below `csrc/kernels` for each kind of processor of this architecture."""

    def build_extension(self, ext: Extension) -> None:
        """Add the objects of the kernels to those of the module."""
        kernels = sorted(str(path) for path in Path("csrc/kernels").rglob("*.c"))
        chosen = variants()
        for name, kernel in product(chosen, kernels):  # two threads must not make the same folder
            Path(self.build_temp, name, kernel).parent.mkdir(parents=True, exist_ok=True)

        def compile_one(job: tuple[str, str]) -> list[str]:
            name, kernel = job
            return self.compiler.compile(
                [kernel],
                output_dir=str(Path(self.build_temp) / name),
                extra_postargs=[*FLAGS, *FAST, *chosen[name], f"-DPOPC_ISA={name}"],
                depends=ext.depends,
            )

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for objects in threads.map(compile_one, product(chosen, kernels)):
                ext.extra_objects += objects
        super().build_extension(ext)


def headers() -> list[str]:
    """The files that every object depends on."""
    return sorted(str(path) for path in Path("csrc").rglob("*.h"))


def library() -> Extension:
    """The module; a build that fails leaves a package that computes with numpy."""
    strip = ["-s"] if get_platform().startswith("linux") else []  # others know no such flag
    return Extension(
        "popc_runtime.native._native",
        [f"csrc/{name}.c" for name in CORE],
        depends=headers(),
        extra_compile_args=[*FLAGS, "-O2"],
        extra_link_args=["-pthread", "-lm", *strip],
        py_limited_api=True,
        optional=True,
    )


if __name__ == "__main__":  # builds with sanitizers take the flags from here
    if os.environ.get("POPC_NATIVE") == "none" or not variants():  # a wheel for any platform
        setup()
    else:
        setup(
            ext_modules=[library()],
            cmdclass={"build_ext": BuildKernels},
            options={"bdist_wheel": {"py_limited_api": "cp311"}},
        )
