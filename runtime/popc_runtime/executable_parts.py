"""The parts of an executable, imported only where the archive needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from popc_runtime.device import Engine, Ports, binder_type
from popc_runtime.errors import UsageError
from popc_runtime.format import (
    MAIN_PROGRAM,
    FloatCheck,
    Manifest,
    ProgramImage,
    StreamDirection,
    StreamSpec,
    TensorSpec,
)
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    import numpy as np

    from popc_runtime.cycles.counters import CycleCounters
    from popc_runtime.cycles.execution import CycleProfile
    from popc_runtime.data.sizes import OutputSizes
    from popc_runtime.data.synthetic import SyntheticInput
    from popc_runtime.device import ReplicatedEngine
    from popc_runtime.dispatch import Dispatch
    from popc_runtime.groups import Group, ReplicaShare
    from popc_runtime.process.run_lock import RunLock

__all__ = [
    "bfloat16_numbers",
    "chosen_checks",
    "chosen_counters",
    "chosen_program",
    "cycle_counters",
    "dispatch_of",
    "make_engine",
    "output_sizes",
    "stream_names",
    "streams_by_name",
    "synthetic_inputs",
    "telling",
]


def make_engine(
    manifest: Manifest,
    image: ProgramImage,
    constants: memoryview,
    ports: Ports,
    *,
    seed: int,
    threads: int,
    checks: Collection[FloatCheck],
    counted: Collection[str],
    late: Collection[str],
    engine: str,
    watch: RunWatch,
    share: ReplicaShare | None,
) -> Engine | ReplicatedEngine:
    """The engine of the program, or the one that leads those of all replicas of this process."""
    variables, make_binder = manifest.variables, binder_type(engine, checks)
    if manifest.replicas == 1:
        return Engine(
            make_binder,
            image,
            constants,
            ports,
            variables=variables,
            seed=seed,
            threads=threads,
            checks=checks,
            counted=counted,
            late=late,
            watch=watch,
        )
    from popc_runtime.device import ReplicatedEngine
    from popc_runtime.groups import ReplicaShare

    made = ReplicatedEngine(
        make_binder,
        image,
        constants,
        ports,
        share=share or ReplicaShare(0, manifest.replicas, manifest.replicas),
        variables=variables,
        seed=seed,
        threads=threads,
        checks=checks,
        identical_seeds=manifest.identical_seeds,
        counted=counted,
        late=late,
        watch=watch,
    )
    if share is not None and share.group is not None:
        share.group.agree("the engine that computes", {"engine": made.kind})
    return made


def synthetic_inputs(manifest: Manifest, seed: int) -> dict[str, SyntheticInput]:
    """Sources of the streams that nobody gives samples of, by name."""
    everything = [*manifest.streams]
    for variant in manifest.variants:
        everything += variant.streams
    streams = [stream for stream in everything if stream.synthetic]
    if not streams:
        return {}
    from popc_runtime.data.synthetic import SyntheticInput

    names = dict.fromkeys(stream.name for stream in streams)
    return {
        name: SyntheticInput([each for each in streams if each.name == name], seed)
        for name in names
    }


def cycle_counters(
    profiles: Mapping[str, CycleProfile], engine: Engine | ReplicatedEngine
) -> dict[str, CycleCounters]:
    """The counters of the programs that have a profile."""
    if not profiles:
        return {}
    from popc_runtime.cycles.counters import CycleCounters

    return {
        name: CycleCounters(profile, engine.replicas, name) for name, profile in profiles.items()
    }


def chosen_counters(
    counters: Mapping[str, CycleCounters], name: str, dispatch: Dispatch | None, call: int | None
) -> list[CycleCounters]:
    """The counters of a program, or of those of a whole archive that ran in a call (or ever).

    Raises:
        UsageError: the archive was compiled without.
    """
    if name not in counters:
        raise UsageError(
            "the archive was compiled without cycle counters",
            hint="compile the model with instrument_with_hardware_cycle_counter = true",
        )
    if dispatch is None:
        return [counters[name]]
    return [each for each in counters.values() if each.has_run(call)] or [counters[name]]


def chosen_checks(
    manifest: Manifest, *, given: bool | Iterable[str] | None
) -> tuple[FloatCheck, ...]:
    """The floating-point checks to make: of ``None``, those of the archive.

    ``True`` stands for the same or, if the archive has none, for all; ``False`` for none.

    Raises:
        UsageError: there is no such check.
    """
    if given is None:
        return manifest.floating_point_checks
    if isinstance(given, bool):
        return (manifest.floating_point_checks or tuple(FloatCheck)) if given else ()
    try:
        return tuple(FloatCheck(name) for name in given)
    except ValueError as error:
        raise UsageError(
            f"floating_point_checks: {error}", hint=f"there are {', '.join(FloatCheck)}"
        ) from None


def bfloat16_numbers() -> np.dtype[Any]:
    """numpy's type of bfloat16 numbers.

    Raises:
        UsageError: nothing that is installed adds one.
    """
    import numpy as np

    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise UsageError(
            "numpy has no bfloat16 unless ml_dtypes adds it, which is not installed",
            hint="pip install ml_dtypes, or load without bfloat16=",
        ) from None
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found


def stream_names(manifest: Manifest) -> tuple[list[str], list[str]]:
    """The inputs and the outputs of all programs of an archive."""
    inputs = [spec.name for spec in manifest.inputs]
    specs = [*manifest.outputs]
    for variant in manifest.variants:
        inputs += [spec.name for spec in variant.inputs]
        specs += variant.outputs
    outputs = [spec.name for spec in specs] + [
        name for spec in specs for name in spec.sizes if name
    ]
    return list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))


def streams_by_name(manifest: Manifest) -> tuple[dict[str, StreamSpec], dict[str, StreamSpec]]:
    """The streams of inputs, and those of outputs."""
    feeding: dict[str, StreamSpec] = {}
    returning: dict[str, StreamSpec] = {}
    for stream in manifest.streams:
        by_name = feeding if stream.direction is StreamDirection.INPUT else returning
        by_name[stream.name] = stream
    return feeding, returning


def output_sizes(outputs: Sequence[TensorSpec]) -> OutputSizes | None:
    """The sizes of outputs, if data decides any."""
    if not any(spec.sizes for spec in outputs):
        return None
    from popc_runtime.data.sizes import OutputSizes

    return OutputSizes(outputs)


def dispatch_of(
    manifest: Manifest, program: Callable[[str, Manifest], Any], turns: RunLock
) -> Dispatch | None:
    """The choice among the programs of an archive, which ``program`` makes by name, if any is."""
    if not manifest.variants and not manifest.fits:
        return None
    from popc_runtime.dispatch import Dispatch

    alone = replace(manifest, variants=(), fits=())
    programs = [program(MAIN_PROGRAM, alone)]
    programs += [
        program(variant.name, manifest.of_program(variant.name)) for variant in manifest.variants
    ]
    return Dispatch(programs, manifest.fits, turns)


def chosen_program(programs: Sequence[Any], which: str | Mapping[str, Sequence[int]]) -> Any:
    """See `Executable.program`."""
    if isinstance(which, str):
        found = [program for program in programs if program.name == which]
    else:
        wanted = {name: tuple(shape) for name, shape in which.items()}
        found = [
            program
            for program in programs
            if wanted.items() <= {spec.name: spec.shape for spec in program.inputs}.items()
        ]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(
        f"{program.name}: {', '.join(map(str, program.inputs))}" for program in programs
    )
    many = "more than one program has" if found else "no program has"
    what = f"there is no program {which!r}" if isinstance(which, str) else f"{many} {wanted}"
    raise UsageError(what, hint=f"there are {listed}")


class telling:  # noqa: N801 - used as a function; contextlib would be slower to enter
    """A block whose exceptions are told to the other processes: they cannot go on either."""

    __slots__ = ("_group",)

    def __init__(self, group: Group | None) -> None:
        self._group = group

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._group is not None:
            self._group.fail(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
