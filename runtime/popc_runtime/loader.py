"""From a file to an executable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from popc_runtime.device import LOAD_PROGRAM, MAIN_PROGRAM
from popc_runtime.errors import CorruptArchiveError
from popc_runtime.executable import Executable
from popc_runtime.format import DEFAULT_LIMITS as _DEFAULT_LIMITS
from popc_runtime.format import ArchiveFile, InMemory, Limits, ProgramImage, decode_program
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.native import fast_sha256
from popc_runtime.process.threads import chosen_threads

if TYPE_CHECKING:
    from popc_runtime.cycles.execution import CycleProfile

__all__ = ["load"]


def load(
    source: str | os.PathLike[str] | bytes | InMemory,
    *,
    seed: int = 0,
    threads: int | None = None,
    floating_point_checks: bool | Iterable[str] | None = None,
    engine: str = "auto",
    limits: Limits | str = _DEFAULT_LIMITS,
) -> Executable:
    """Load an archive.

    Args:
        source: Path of a .popx file, its bytes, or what `popc.compile` returns.
        seed: Of the device's random numbers.
        threads: How many threads may work on one run; results do not depend on it.  Default: what
            the environment variable POPC_NUM_THREADS says, or one for each processor.
        floating_point_checks: Whether a run fails when an instruction makes NaN or infinity of
            ordinary numbers, naming the instruction: all of "div0", "invalid" and "overflow", or
            some of them.  Default: what the archive was compiled for.
        engine: "native" runs native kernels, "numpy" does without, and "auto" takes those that
            there are for this processor.  Floating-point checks need numpy.
        limits: What an archive may make the loader do and allocate: `Limits`, or "strict" for
            archives of strangers.

    Raises:
        ArchiveError: not an archive, damaged, or written for another version.
        ResourceError: the file cannot be read, or there is not enough memory.
        DeviceError: the program computes its weights at load time, and that failed.
        UsageError: ``source`` is none of these, the number of threads is not positive or too
            large, or a check, an engine or limits of that name do not exist.
    """
    count, limits = chosen_threads(threads), Limits.of(limits)
    with (
        ArchiveFile.open(source, limits=limits) as archive,
        archive.begin("weights", fast_sha256()) as weights,
    ):
        image = decode_program(archive.read("program"), limits)
        if weights.data.nbytes != image.constant_bytes:
            raise CorruptArchiveError(
                f"the program needs {image.constant_bytes:,} bytes of weights, but the archive "
                f"has {weights.data.nbytes:,}",
                hint="compile the model again",
            )
        _check_programs(archive.manifest.programs, image)
        _check_memory(archive.manifest.replicas, image, limits)
        if LOAD_PROGRAM in image.programs:
            weights.verify()  # nothing runs on bytes that may be damaged
        return Executable(
            archive.manifest,
            image,
            weights.data,
            seed=seed,
            threads=count,
            floating_point_checks=floating_point_checks,
            engine=engine,
            profile=_profile(archive),
        )


def _profile(archive: ArchiveFile) -> CycleProfile | None:
    """The costs of the program's steps, if the archive was compiled to tell them."""
    if "cycles" not in archive.blobs:
        return None
    from popc_runtime.cycles.execution import CycleProfile

    return CycleProfile(archive.read("cycles"))


def _check_programs(names: Sequence[str], image: ProgramImage) -> None:
    """There are those that the manifest has, and the one that a run runs."""
    if set(names) != set(image.programs) or MAIN_PROGRAM not in image.programs:
        raise CorruptArchiveError(
            f"the archive lists programs {', '.join(names):.200} and holds "
            f"{', '.join(image.programs):.200}: both must be the same, with {MAIN_PROGRAM}",
            hint="compile the model again",
        )


def _check_memory(replicas: int, image: ProgramImage, limits: Limits) -> None:
    """Check the memory limit for all replicas together, as decoding has for one."""
    largest = max(image.arena_bytes, image.state_bytes, image.remote_bytes)
    if replicas * largest > limits.memory_bytes:
        raise CorruptArchiveError(
            f"{replicas} replicas need more memory than the limit of {limits.memory_bytes:,} bytes",
            hint="raise the limit `memory_bytes` if you trust the archive",
        )
