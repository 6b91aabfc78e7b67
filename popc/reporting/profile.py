"""All that is known about a compiled program: its manifest, its instructions, what it costs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from popc.archive import Archive
from popc.cost import CostReport, decode_report
from popc_runtime.errors import UsageError
from popc_runtime.format import (
    MAIN_PROGRAM,
    ArchiveFile,
    BlobInfo,
    BlobKind,
    Manifest,
    blob_of_program,
    decode_program,
    instructions_of,
)
from popc_runtime.ground.frozen import frozen

__all__ = ["Profile", "profile_of", "read_profile"]


@frozen
class Profile:
    """A compiled program, seen from outside.

    Attributes:
        name: Of the file.
        bytes: Of the archive.
        manifest: What the archive says about itself.
        blobs: What it consists of, by name.
        instructions: How many there are of each opcode.
        costs: ``None`` if the archive was compiled without ``cost_report``.
    """

    name: str
    bytes: int
    manifest: Manifest
    blobs: Mapping[str, BlobInfo]
    instructions: Mapping[str, int]
    costs: CostReport | None

    def known_costs(self) -> CostReport:
        """The costs of the program.

        Raises:
            UsageError: the archive does not know.
        """
        if self.costs is None:
            raise UsageError(
                f"{self.name} has no cost report: it was compiled without one",
                subject=self.name,
                hint="compile it again with cost_report = true, or give the model itself",
            )
        return self.costs


def read_profile(path: Path, name: str = "", program: str = "") -> Profile:
    """The profile of an archive in a file; of several programs, ``program`` names one.

    Raises:
        ArchiveError: the file is no archive, or is damaged.
        UsageError: it has no such program.
    """
    with ArchiveFile.open(path) as archive:
        image = decode_program(archive.read("program"))
        manifest = _of_program(archive.manifest, program)
        blob = blob_of_program("report", program or MAIN_PROGRAM)
        report = archive.blobs.get(blob)  # there may be other blobs of this kind
        known = report is not None and report.kind == BlobKind.REPORT
        return Profile(
            name=name or path.name,
            bytes=path.stat().st_size,
            manifest=manifest,
            blobs=dict(archive.blobs),
            instructions=Counter(
                instruction.opcode
                for own, block in image.programs.items()
                if not program or own.partition("/")[0] == program
                for instruction in instructions_of(block)
            ),
            costs=decode_report(archive.read(blob)) if known else None,
        )


def _of_program(manifest: Manifest, program: str) -> Manifest:
    names = [MAIN_PROGRAM, *(variant.name for variant in manifest.variants)]
    if program not in ("", *names):
        raise UsageError(
            f"the archive has no program {program!r}", hint=f"it has {', '.join(names)}"
        )
    return manifest if program in ("", MAIN_PROGRAM) else manifest.of_program(program)


def profile_of(archive: Archive, name: str) -> Profile:
    """The profile of an archive that is not in a file yet."""
    with tempfile.TemporaryDirectory() as folder:
        return read_profile(archive.save(Path(folder) / "program.popx"), name)
