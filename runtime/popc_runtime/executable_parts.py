"""The parts of an executable, imported only where the archive needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from popc_runtime.device import Engine, Ports, binder_type
from popc_runtime.errors import UsageError
from popc_runtime.format import FloatCheck, Manifest, ProgramImage
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from popc_runtime.cycles.counters import CycleCounters
    from popc_runtime.cycles.execution import CycleProfile
    from popc_runtime.data.synthetic import SyntheticInput
    from popc_runtime.device import ReplicatedEngine

__all__ = ["RunStats", "chosen_checks", "cycle_counters", "make_engine", "synthetic_inputs"]


@frozen
class RunStats:
    """The work of an executable so far; times in seconds."""

    bind_seconds: float
    runs: int = 0
    run_seconds: float = 0.0


def make_engine(
    manifest: Manifest,
    image: ProgramImage,
    constants: memoryview,
    ports: Ports,
    *,
    seed: int,
    threads: int,
    checks: Collection[FloatCheck],
    counted: str,
    engine: str,
) -> Engine | ReplicatedEngine:
    """The engine of the program, or the one that leads those of all replicas."""
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
        )
    from popc_runtime.device import ReplicatedEngine

    return ReplicatedEngine(
        make_binder,
        image,
        constants,
        ports,
        replicas=manifest.replicas,
        variables=variables,
        seed=seed,
        threads=threads,
        checks=checks,
        identical_seeds=manifest.identical_seeds,
        counted=counted,
    )


def synthetic_inputs(manifest: Manifest, seed: int) -> dict[str, SyntheticInput]:
    """Sources of the streams that nobody gives samples of, by name."""
    streams = [stream for stream in manifest.streams if stream.synthetic]
    if not streams:
        return {}
    from popc_runtime.data.synthetic import SyntheticInput

    return {stream.name: SyntheticInput(stream, seed) for stream in streams}


def cycle_counters(
    profile: CycleProfile | None, engine: Engine | ReplicatedEngine
) -> CycleCounters | None:
    """The counters of an archive with a profile."""
    if profile is None:
        return None
    from popc_runtime.cycles.counters import CycleCounters

    return CycleCounters(profile, engine.replicas)


def chosen_checks(
    manifest: Manifest, *, given: bool | Iterable[str] | None
) -> tuple[FloatCheck, ...]:
    """``None`` chooses what the archive says, ``True`` the same but at least one."""
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
