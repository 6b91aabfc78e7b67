"""From a file to an executable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from popc_runtime.custom import require_operators
from popc_runtime.errors import CorruptArchiveError, UsageError
from popc_runtime.executable import Executable
from popc_runtime.format import DEFAULT_LIMITS as _DEFAULT_LIMITS
from popc_runtime.format import (
    LOAD_PROGRAM,
    MAIN_PROGRAM,
    ArchiveFile,
    ArchiveSource,
    Limits,
    Manifest,
    ProgramImage,
    blob_of_program,
    decode_program,
    require_host_calls,
)
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.native import fast_sha256
from popc_runtime.process.paths import is_url
from popc_runtime.process.stale import remove_stale
from popc_runtime.process.threads import chosen_threads
from popc_runtime.recipe import Recipe

if TYPE_CHECKING:
    from popc_runtime.cycles.execution import CycleProfile
    from popc_runtime.format.reader import PendingBlob
    from popc_runtime.format.signature import Keys
    from popc_runtime.groups import Group, ReplicaShare

__all__ = ["load"]

_BFLOAT16 = ("bits", "ml_dtypes")


def load(
    source: ArchiveSource,
    *,
    seed: int | None = None,
    threads: int | None = None,
    floating_point_checks: bool | Iterable[str] | None = None,
    engine: str = "auto",
    limits: Limits | str = _DEFAULT_LIMITS,
    bfloat16: str = "bits",
    timeout: float | None = None,
    copy_weights: bool = False,
    require_signature: Keys | None = None,
    group: Group | None = None,
    host_calls: Mapping[str, Callable[..., Any]] | None = None,
    bind_late: bool = False,
) -> Executable:
    """Load an archive.

    Args:
        source: Path of a .popx file, a URL that fsspec opens where it is installed (s3://...), its
            bytes, a file that was opened for reading bytes, or an archive as `popc.compile` returns
            it.
        seed: Of the device's random numbers.  Default: what the archive was compiled for.
        threads: How many threads may work on one run; results do not depend on it.  Default: what
            the environment variable POPC_NUM_THREADS says, or one for each processor.
        floating_point_checks: Whether a run fails when an instruction makes NaN or infinity of
            ordinary numbers, naming the instruction: all of "div0", "invalid" and "overflow", or
            some of them.  Default: what the archive was compiled for.
        engine: "native" runs native kernels, "numpy" does without, and "auto" takes those that
            there are for this processor.  Floating-point checks need numpy.
        limits: What an archive may make the loader do and allocate: `Limits`, or "strict" for
            archives of strangers.
        bfloat16: The arrays that `run` returns of bfloat16 results: "bits" are uint16 arrays,
            "ml_dtypes" numbers of ml_dtypes.bfloat16, where that package is installed.
        timeout: Seconds after which what the program computes at load time is stopped.
        copy_weights: Read weights that are stored to be mapped (``weights=mmap``) into memory of
            this process.  A file that others may write to is not safe to map: a run notices that
            it was overwritten or cut off before, but a file that is cut off while a program reads
            it ends the process.
        require_signature: The path of a public key in a PEM file, or several: one of them must have
            signed the archive, in the file of its name with ``.sig`` added (`popc sign`).
        group: The processes that divide the replicas of the archive among themselves, as
            `popc_runtime.groups.join` gives them; all of them load it.
        host_calls: The functions that the program calls on the host (``Manifest.host_calls``), by
            name.  Each takes read-only arrays and gives an array, or several in a list or tuple.
        bind_late: Choose the kernels of the main program when it first runs, and not yet: that
            takes up to a tenth of a millisecond for each instruction.

    Raises:
        ArchiveError: not an archive, damaged, or written for another version.
        SignatureError: it is not signed by whom it should be.
        UnregisteredOperatorError: it needs operators that `popc_runtime.custom` does not know.
        ResourceError: the file cannot be read, or there is not enough memory.
        DeviceError: the program computes its weights at load time, and that failed, or took longer
            than ``timeout``.
        UsageError: ``host_calls`` are not those that the program calls, ``source`` is nothing that
            could be an archive, the number of threads is not
            positive or too large, a check, an engine or limits of that name do not exist,
            ml_dtypes is missing, or the processes of ``group`` cannot divide the replicas, or
            differ in what they load.
    """
    count, limits, numbers = chosen_threads(threads), Limits.of(limits), _wants_numbers(bfloat16)
    settings: dict[str, Any] = {"seed": seed, "threads": threads, "engine": engine}
    settings |= {"floating_point_checks": floating_point_checks, "limits": limits}
    settings |= {"bfloat16": bfloat16, "timeout": timeout, "copy_weights": copy_weights}
    settings |= {"require_signature": require_signature, "host_calls": host_calls}
    settings["bind_late"] = bind_late
    with (
        ArchiveFile.open(source, limits=limits) as archive,
        _signed(archive, source, require_signature).begin(
            "weights", fast_sha256(), copies=copy_weights
        ) as weights,
    ):
        image = decode_program(archive.read("program"), limits)
        _check_image(archive.manifest, image, limits, weights.data.nbytes, group)
        require_host_calls(archive.manifest.host_calls, host_calls or {})
        manifest, share = _joined(archive, image, group, seed, checks=floating_point_checks)
        _verify(weights, image)
        return Executable(
            manifest,
            image,
            weights.data,
            seed=archive.manifest.seed if seed is None else seed,
            threads=count,
            floating_point_checks=floating_point_checks,
            engine=engine,
            profiles=_profiles(archive),
            numbers=numbers,
            timeout=timeout,
            guard=weights.guard,
            recipe=None if group else Recipe(load, _tidied(source), archive.digest, settings),
            share=share,
            host_calls=host_calls,
            bind_late=bind_late,
        )


def _verify(weights: PendingBlob, image: ProgramImage) -> None:
    """Let nothing run on bytes that may be damaged."""
    if LOAD_PROGRAM in image.programs:
        weights.verify()


def _joined(
    archive: ArchiveFile,
    image: ProgramImage,
    group: Group | None,
    seed: int | None,
    *,
    checks: bool | Iterable[str] | None,
) -> tuple[Manifest, ReplicaShare | None]:
    """The manifest of the replicas of this process, and the numbers of these.

    Raises:
        UsageError: the processes do not load the same, or cannot divide the replicas.
    """
    if group is None:
        return archive.manifest, None
    from popc_runtime.ground.lazy import installed_version
    from popc_runtime.groups import ReplicaShare, local_manifest

    group.agree(
        "what they load",
        {
            "archive": f"SHA-256 {archive.digest.hex()[:16]}",
            "popc-runtime": installed_version("popc-runtime"),
            "seed": "that of the archive" if seed is None else str(seed),
            "floating_point_checks": str(checks),
        },
    )
    share = ReplicaShare.of(archive.manifest, image, group)
    return local_manifest(archive.manifest, share), share


def _signed(archive: ArchiveFile, source: ArchiveSource, keys: Keys | None) -> ArchiveFile:
    """The archive, once it is found to be signed by one of ``keys``."""
    if keys is not None:
        from popc_runtime.format.signature import require_signature

        require_signature(archive, _absolute(source), keys)
    return archive


def _wants_numbers(bfloat16: str) -> bool:
    if bfloat16 not in _BFLOAT16:
        raise UsageError(
            f"bfloat16: there is no choice {bfloat16!r}", hint=f"choose from {', '.join(_BFLOAT16)}"
        )
    return bfloat16 == "ml_dtypes"


def _tidied(source: ArchiveSource) -> str:
    """The absolute path of an archive, beside which nothing is left of writers that were killed."""
    path = _absolute(source)
    if path and not is_url(path):
        remove_stale(os.path.dirname(path))  # noqa: PTH120 - pathlib is slow to import
    return path


def _absolute(source: ArchiveSource) -> str:
    """The path or URL of a file, wherever the process goes; "" if there is none."""
    if not isinstance(source, (str, os.PathLike)):
        return ""
    if is_url(source):
        from popc_runtime.format.remote import local_path  # rarely used

        return local_path(os.fspath(source)) or os.fspath(source)
    return os.path.join(os.getcwd(), os.fsdecode(source))  # noqa: PTH109, PTH118 - pathlib is slow to import


def _profiles(archive: ArchiveFile) -> dict[str, CycleProfile]:
    """The costs of the steps of each program, if the archive was compiled to tell them."""
    names = [MAIN_PROGRAM, *(variant.name for variant in archive.manifest.variants)]
    blobs = {name: blob_of_program("cycles", name) for name in names}
    there = {name: blob for name, blob in blobs.items() if blob in archive.blobs}
    if not there:
        return {}
    from popc_runtime.cycles.execution import CycleProfile

    return {name: CycleProfile(archive.read(blob)) for name, blob in there.items()}


def _check_image(
    manifest: Manifest,
    image: ProgramImage,
    limits: Limits,
    weights_bytes: int,
    group: Group | None,
) -> None:
    if weights_bytes != image.constant_bytes:
        raise CorruptArchiveError(
            f"the program needs {image.constant_bytes:,} bytes of weights, but the archive has "
            f"{weights_bytes:,}",
            hint="compile the model again",
        )
    _check_programs(manifest, image)
    _check_memory(manifest.replicas // (group.size if group else 1), image, limits)


def _check_programs(manifest: Manifest, image: ProgramImage) -> None:
    """There are those that the manifest has, and the one that a run runs, and all they need."""
    require_operators(manifest.operators)
    names = manifest.programs
    if set(names) != set(image.programs) or MAIN_PROGRAM not in image.programs:
        raise CorruptArchiveError(
            f"the archive lists programs {', '.join(names):.200} and holds "
            f"{', '.join(image.programs):.200}: both must be the same, with {MAIN_PROGRAM}",
            hint="compile the model again",
        )


def _check_memory(replicas: int, image: ProgramImage, limits: Limits) -> None:
    """Check the memory limit for all replicas of a process, as decoding has for one."""
    largest = max(image.arena_bytes, image.state_bytes, image.remote_bytes)
    if replicas * largest > limits.memory_bytes:
        raise CorruptArchiveError(
            f"{replicas} replicas need more memory than the limit of {limits.memory_bytes:,} bytes",
            hint="raise the limit `memory_bytes` if you trust the archive",
        )
