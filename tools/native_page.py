"""Print docs/native-instructions.md: which instructions run without Python.

`make native` writes it.  What is counted are the steps of the programs of ONNX's own tests of
operators; a block of a program is one step.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import popc_runtime
from popc_runtime.kernels.families import FAMILIES
from popc_runtime.native import native_opcodes
from tests.conformance.adapter import compile_case
from tests.conformance.cases import Case, cases

__all__ = ["native_page"]

_INTRODUCTION = """\
# Instructions that run natively

Made from the code by `make native`, which runs ONNX's tests of operators on the native engine.

An instruction has a *kernel* of its own, for some operands at least, or its *calls* of numpy \
functions are translated one by one where kernels know them. The columns count the steps of these \
tests that ran in the native library, and those that ran in numpy.
"""


@dataclass(slots=True)
class _Counts:
    native: Counter[str] = field(default_factory=Counter[str])
    numpy: Counter[str] = field(default_factory=Counter[str])


def native_page() -> str:
    """The page.

    Raises:
        RuntimeError: there are no native kernels on this machine.
    """
    counts = _Counts()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases("node").values():
            _count(case, Path(folder) / "case.popx", counts)
    known = {opcode for family in FAMILIES.values() for opcode in family}
    opcodes = sorted(known | counts.native.keys() | counts.numpy.keys())
    own = native_opcodes()
    rows = [
        f"| {opcode} | {'kernel' if opcode in own else 'calls'} "
        f"| {counts.native[opcode]} | {counts.numpy[opcode]} |"
        for opcode in opcodes
    ]
    summary = (
        f"{len(own)} of {len(opcodes)} instructions have a kernel. Of "
        f"{counts.native.total() + counts.numpy.total()} steps {counts.native.total()} ran "
        f"natively, {sum(counts.native[opcode] for opcode in own)} of them of instructions with a "
        f"kernel, and {counts.numpy.total()} in numpy."
    )
    head = ("| instruction | native by | native steps | numpy steps |", "|---|---|---|---|")
    return "\n".join((_INTRODUCTION, summary, "", *head, *rows)) + "\n"


def _count(case: Case, path: Path, counts: _Counts) -> None:
    """Add the steps of a case; one that popc does not run has none."""
    try:
        for compiled in compile_case(case):
            compiled.archive.save(path, force=True)
            program = popc_runtime.load(path, engine="native")
            for step in program.profile(compiled.inputs):
                (counts.native if step.native else counts.numpy)[step.opcode] += 1
    except popc_runtime.PopcError:
        return


if __name__ == "__main__":
    print(native_page(), end="")
