"""The parts of an executable's interface that are made of its other parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType

from popc_runtime.data.calls import inputs_by_position
from popc_runtime.errors import UsageError
from popc_runtime.format import StreamDirection
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from popc_runtime.cycles.counters import CycleCounters
    from popc_runtime.cycles.execution import ExecutionReport
    from popc_runtime.data.tensors import ResultTensor
    from popc_runtime.format import Array, Manifest, StreamSpec, TensorSpec
    from popc_runtime.groups import Group, ReplicaShare
    from popc_runtime.recipe import Recipe
    from popc_runtime.state.device_state import DeviceState

__all__ = ["RunStats", "Runnable"]


@frozen
class RunStats:
    """The work of an executable so far; times in seconds."""

    bind_seconds: float
    runs: int = 0
    run_seconds: float = 0.0


class Runnable(ABC):
    """Calls, context managers, copies, and what notebooks show.

    Attributes:
        manifest: What the archive says about itself.
        inputs: Name, dtype and shape of what `run` takes.
        outputs: Name, dtype and shape of what `run` returns.
        recipe: Where it was loaded from, and how; ``None`` if it was not made by `load`.
        share: Which of its replicas this process runs; ``None`` if there is only this one.
    """

    manifest: Manifest
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    recipe: Recipe | None = None
    share: ReplicaShare | None = None
    _feeding: Mapping[str, StreamSpec]
    _returning: Mapping[str, StreamSpec]

    def stream(self, name: str, direction: str | None = None) -> StreamSpec:
        """The data that moves through a stream.

        An input and an output may have one name: ``direction``, "input" or "output", says whose
        stream is meant, by default that of the input.

        Raises:
            KeyError: there is none.
        """
        by_name = self._returning if direction == StreamDirection.OUTPUT else self._feeding
        if name not in by_name and direction is None:
            by_name = self._returning
        return by_name[name]

    @property
    def group(self) -> Group | None:
        """The processes that run its replicas; ``None`` if this one runs all."""
        return None if self.share is None else self.share.group

    @property
    @abstractmethod
    def state(self) -> DeviceState:
        """The tensors that live on the device from run to run."""

    @abstractmethod
    def run(self, inputs: Any = None, /, **named: Any) -> dict[str, Array]:
        """Run the main program once."""

    @property
    @abstractmethod
    def programs(self) -> Sequence[Runnable]:
        """An executable for each program of the archive."""

    @abstractmethod
    def run_buffers(self, inputs: Any = None, /, **named: Any) -> dict[str, ResultTensor]:
        """Run the main program once, without numpy."""

    @abstractmethod
    def _required_counters(self, *, total: bool) -> Sequence[CycleCounters]:
        """The counters of cycles of the programs of the last call; with ``total``, of all calls.

        Raises:
            UsageError: the archive was compiled without.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish pending asynchronous runs and refuse new ones."""

    def __call__(self, /, *arrays: Any, **named: Any) -> dict[str, Array]:
        """`run` on inputs by position, in the order of ``inputs``, or by keyword.

        Raises:
            InputMismatchError, UsageError, DeviceError: see `run`.
        """
        return self.run(inputs_by_position(self.inputs, arrays, named))

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles load the archive again, by its path.

        Variables and random numbers go on from where they are.

        Raises:
            UsageError: the archive was not in a file, or other processes run replicas of it.
        """
        if self.group is not None:
            raise UsageError(
                "an executable that is one of a group of processes can be neither copied nor "
                "pickled",
                hint="load the archive in each process",
            )
        if self.recipe is None or not self.recipe.path:
            raise UsageError(
                "an executable whose archive was in memory can be neither copied nor pickled",
                hint="save the archive, and load it by its path",
            )
        held = {"variables": self.state.read(), "random": self.state.random_state()}
        return self.recipe.load, (), held

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["variables"]:
            self.state.write(state["variables"])
        self.state.set_random_state(state["random"])

    def warmup(self, runs: int = 1) -> None:
        """Run all programs on zeros, so that the first real run finds everything in place.

        Variables and random numbers are as before then.
        """
        held = self.state.read() if self.manifest.variables else {}
        random = self.state.random_state() if held else None
        for program in self.programs:
            zeros = {spec.name: bytes(spec.nbytes) for spec in program.inputs}
            for _ in range(runs):
                program.run_buffers(zeros)
                if held:
                    self.state.write(held)
        if held:
            self.state.set_random_state(random)

    def get_cycle_count(self, name: str = "") -> int:
        """Cycles that the last run would have taken on the target that the archive is for.

        Of a run in parts, as archives of several shapes make them, of all parts together.

        Args:
            name: "" or "outer" for the whole program; "inner_ipu_0" and so on for what one IPU does
                in the innermost main loop (the whole program, if it has no loop).

        Raises:
            UsageError: nothing has run yet, the archive was compiled without
                ``instrument_with_hardware_cycle_counter``, or it does not count this.
        """
        return sum(each.cycle_count(name) for each in self._required_counters(total=False))

    def execution_report(self, *, total: bool = False) -> ExecutionReport:
        """The report on what the last run would have taken; with ``total``, on all runs so far.

        Raises:
            UsageError: see `get_cycle_count`.
        """
        first, *others = (each.report(total=total) for each in self._required_counters(total=total))
        return first.joined(others) if others else first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"Executable({inputs}) -> ({outputs})"

    def _repr_html_(self) -> str:
        from popc_runtime.display import manifest_html

        return manifest_html("Executable", self.manifest)
