"""Print docs/inside/native-instructions.md: which instructions run without Python.

`make native` writes it.  What is counted are the steps of the programs of ONNX's own tests of
operators; a block of a program is one step.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import popc_runtime
from popc_runtime.device.bound_program import IO_OPCODES
from popc_runtime.kernels.core.families import FAMILIES
from popc_runtime.native import native_opcodes
from tests.conformance.adapter import compile_case
from tests.conformance.cases import Case, cases

__all__ = ["kinds", "native_page"]

_INTRODUCTION = """\
# Instructions that run natively

Made from the code by `make native`, which runs ONNX's tests of operators on the native engine.

An instruction has a *kernel* of its own, for some operands at least, or its *calls* of numpy \
functions are translated one by one where kernels know them. The columns count the steps of these \
tests that ran in the native library, and those that ran in numpy. Chains of elementwise \
instructions are not fused there (FusedElementwise), so that each is counted.
"""


_BLOCKS: Final = frozenset({"If", "Repeat"})


@dataclass(slots=True)
class _Counts:
    native: Counter[str] = field(default_factory=Counter[str])
    numpy: Counter[str] = field(default_factory=Counter[str])


def kinds() -> dict[str, str]:
    """The way each instruction runs, in alphabetical order: a kernel, or calls of numpy."""
    own = native_opcodes()
    known = {opcode for family in FAMILIES.values() for opcode in family}
    opcodes = sorted(known | own | IO_OPCODES | _BLOCKS)
    return {opcode: "kernel" if opcode in own else "calls" for opcode in opcodes}


def native_page() -> str:
    """The page.

    Raises:
        RuntimeError: there are no native kernels on this machine.
    """
    counts = _Counts()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases("node").values():
            _count(case, Path(folder) / "case.popx", counts)
    how = kinds()
    own = [opcode for opcode, kind in how.items() if kind == "kernel"]
    rows = [
        f"| {opcode} | {kind} | {counts.native[opcode]} | {counts.numpy[opcode]} |"
        for opcode, kind in how.items()
    ]
    summary = (
        f"{len(own)} of {len(how)} instructions have a kernel. Of "
        f"{counts.native.total() + counts.numpy.total()} steps {counts.native.total()} ran "
        f"natively, {sum(counts.native[opcode] for opcode in own)} of them of instructions with a "
        f"kernel, and {counts.numpy.total()} in numpy."
    )
    head = ("| instruction | native by | native steps | numpy steps |", "|---|---|---|---|")
    return "\n".join((_INTRODUCTION, summary, "", *head, *rows)) + "\n"


def _count(case: Case, path: Path, counts: _Counts) -> None:
    """Add the steps of a case; one that popc does not run has none."""
    try:
        for compiled in compile_case(case, disabled_passes=["fuse_elementwise"]):
            compiled.archive.save(path, force=True)
            program = popc_runtime.load(path, engine="native")
            for step in program.profile(compiled.inputs):
                (counts.native if step.native else counts.numpy)[step.opcode] += 1
    except popc_runtime.PopcError:
        return


if __name__ == "__main__":
    print(native_page(), end="")
