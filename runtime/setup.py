"""Build the native kernels, if there is a compiler: without them the runtime computes with numpy.

The kernels are compiled once for each kind of processor; the module chooses when it is loaded.
"""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = ("module", "program", "pool")
FLAGS = ["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra"]
# Vector code for loops with conditions needs to know that exceptions do not matter.
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
VARIANTS = {
    "x86_64": {
        "V3": ["-march=x86-64-v3"],
        "V4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    },
    "aarch64": {"BASELINE": []},
}


class BuildKernels(build_ext):
    """Compiles every file of `csrc/kernels` for each kind of processor of this architecture."""

    def build_extension(self, ext: Extension) -> None:
        """Add the objects of the kernels to those of the module."""
        kernels = sorted(str(path) for path in Path("csrc/kernels").glob("*.c"))
        for name, flags in VARIANTS.get(platform.machine(), {}).items():
            ext.extra_objects += self.compiler.compile(
                kernels,
                output_dir=str(Path(self.build_temp) / name),
                extra_postargs=[*FLAGS, *FAST, *flags, f"-DPOPC_ISA={name}"],
                depends=ext.depends,
            )
        super().build_extension(ext)


def headers() -> list[str]:
    """What every object depends on."""
    return sorted(str(path) for path in Path("csrc").rglob("*.h"))


setup(
    ext_modules=[
        Extension(
            "popc_runtime.native._native",
            [f"csrc/{name}.c" for name in CORE],
            depends=headers(),
            extra_compile_args=[*FLAGS, "-O2"],
            extra_link_args=["-pthread", "-lm", "-s"],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
