"""A loaded archive, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import perf_counter
from types import TracebackType

from popc_runtime.data.mismatches import check_stored
from popc_runtime.data.ports import SwitchedInput, SwitchedOutput, discard
from popc_runtime.device import MAIN_PROGRAM, InstructionTime, Ports
from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.executable_parts import (
    RunStats,
    chosen_checks,
    cycle_counters,
    make_engine,
    synthetic_inputs,
)
from popc_runtime.format import Array, Manifest, ProgramImage, StreamSpec, TensorSpec
from popc_runtime.ground.hints import TYPE_CHECKING, Any, Self
from popc_runtime.process.run_lock import Background, RunLock

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy.typing as npt

    from popc_runtime.cycles.counters import CycleCounters
    from popc_runtime.cycles.execution import CycleProfile, ExecutionReport
    from popc_runtime.data.tensors import ResultTensor
    from popc_runtime.native import DirectRun
    from popc_runtime.session import Session
    from popc_runtime.state.device_state import DeviceState

__all__ = ["Executable", "RunStats"]


class Executable:
    """A program with its weights in memory.

    Thread-safe: any thread may call any method.  Runs of one executable wait for each other,
    because they share one arena; for parallel runs, load the archive once per thread.  A run cannot
    be started from within another one (by a source, a sink or a signal handler).

    Attributes:
        manifest: What the archive says about itself.
        inputs: Name, dtype and shape of what `run` takes.
        outputs: Name, dtype and shape of what `run` returns.
    """

    def __init__(
        self,
        manifest: Manifest,
        image: ProgramImage,
        constants: memoryview,
        *,
        seed: int = 0,
        threads: int = 1,
        floating_point_checks: bool | Iterable[str] | None = None,
        profile: CycleProfile | None = None,
        engine: str = "auto",
    ) -> None:
        start = perf_counter()
        self.manifest = manifest
        self.inputs: tuple[TensorSpec, ...] = manifest.inputs
        self.outputs: tuple[TensorSpec, ...] = manifest.outputs
        self._streams = {stream.name: stream for stream in manifest.streams}
        self._synthetic = synthetic_inputs(manifest, seed)
        given = (spec.name for spec in self.inputs if spec.name not in self._synthetic)
        self._feeds = {name: SwitchedInput() for name in given}
        self._results = {spec.name: SwitchedOutput() for spec in self.outputs}
        ports = Ports({**self._feeds, **self._synthetic}, self._results)
        checks = chosen_checks(manifest, given=floating_point_checks)
        self._engine = make_engine(
            manifest,
            image,
            constants,
            ports,
            seed=seed,
            threads=threads,
            checks=checks,
            counted="" if profile is None else MAIN_PROGRAM,
            engine=engine,
        )
        self._counters = cycle_counters(profile, self._engine)
        self._run_lock = RunLock()
        self._lock = self._run_lock.lock
        self._background = Background()
        self._closed = False
        self._bind_seconds = perf_counter() - start
        self._runs, self._run_seconds = 0, 0.0

    @cached_property
    def state(self) -> DeviceState:
        """The tensors that live on the device from run to run.

        These are weights that are trained, and the optimizer's state and changeable numbers.
        """
        from popc_runtime.state.device_state import DeviceState

        return DeviceState(self._engine, self.manifest, self._lock)

    @property
    def engine(self) -> str:
        """The engine: "numpy", or the processors that native kernels are for ("x86-64-v4")."""
        return self._engine.kind

    # -- running ---------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike] | None = None,
        /,
        *,
        out: Mapping[str, Array] | None = None,
        cast: str = "no",
        **named: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the main program once: one step of ``batches_per_step`` batches.

        Args:
            inputs: Arrays by input name; they may also be given as keyword arguments.  Where a
                step has several batches, inputs have a leading dimension for them; so for
                micro-batches, then for replicas.
            out: Arrays to write results to, by output name, with any strides; other results are
                fresh arrays.
            cast: numpy casting rule for inputs of another dtype; "no" refuses them.

        Returns:
            The results by output name.  bfloat16 tensors are uint16 arrays of bit patterns.

        Raises:
            InputMismatchError: inputs are missing, unknown or of another dtype or shape.
            UsageError: ``out`` has what is no output or cannot be written to, or this is called
                from within a run of the same executable.
            DeviceError: an instruction failed.
        """
        given = {**(inputs or {}), **named} if named or not inputs else inputs
        direct = self._direct
        if direct and (done := self._run_directly(direct, given, out)) is not None:
            return done
        from popc_runtime.data.arrays import check_targets, joined_samples

        feeds = self._check_inputs(given, cast)
        targets = check_targets(out or {}, self.outputs)
        collected: dict[str, list[Array]] = {name: [] for name in self._results}
        self.run_connected(feeds, {name: samples.append for name, samples in collected.items()})
        results = {
            spec.name: joined_samples(
                spec, self._streams[spec.name], collected[spec.name], targets.get(spec.name)
            )
            for spec in self.outputs
        }
        return {**results, **(out or {})}  # the caller's own arrays, bfloat16 or not

    @cached_property
    def _direct(self) -> DirectRun | None:
        plain = self._counters is None and not self._synthetic
        return self._engine.direct(MAIN_PROGRAM, self.inputs, self.outputs) if plain else None

    def _run_directly(
        self, direct: DirectRun, given: Mapping[str, object], out: Mapping[str, Array] | None
    ) -> dict[str, Array] | None:
        """`run`, if what is given fits as it is."""
        with self._lock:
            self._check_ready()
            try:
                start, self._run_lock.running = perf_counter(), True
                results = direct(given, out)
            finally:
                self._run_lock.running = False
            if results is not None:
                self._runs += 1
                self._run_seconds += perf_counter() - start
            return results

    def run_buffers(
        self, inputs: Mapping[str, object] | None = None, /, **named: object
    ) -> dict[str, ResultTensor]:
        """Run the main program once, without numpy: the shortest way from a file to a result.

        Args:
            inputs: By input name; they may also be given as keyword arguments.  Each is contiguous
                memory, with the buffer protocol or an array interface: elements of the input's
                type in its shape or in one dimension, or, as ``bytes``, ``bytearray`` or a
                memoryview of bytes, the elements as they are stored.  Where a step has several
                batches, inputs have a leading dimension for them; see `run`.

        Returns:
            The results by output name.

        Raises:
            InputMismatchError: inputs are missing, unknown, not contiguous, or of another type,
                shape or size; lists every problem.
            UsageError: called from within a run of the same executable.
            DeviceError: an instruction failed.
        """
        from popc_runtime.data.tensors import ResultTensor, check_buffers

        given = {**(inputs or {}), **named}
        feeds = check_buffers(given, self.inputs, self._streams, self._synthetic)
        collected = {name: bytearray() for name in self._results}
        self._step(
            {name: iter(samples) for name, samples in feeds.items()},
            {name: samples.extend for name, samples in collected.items()},
        )
        for spec in self.outputs:
            check_stored(spec, len(collected[spec.name]), spec.nbytes, "bytes")
        return {spec.name: ResultTensor(spec, collected[spec.name]) for spec in self.outputs}

    def run_async(
        self, inputs: Mapping[str, npt.ArrayLike] | None = None, /, **named: npt.ArrayLike
    ) -> Future[dict[str, Array]]:
        """`run` in a background thread; runs are made in the order of the calls."""
        with self._lock:
            self._check_open()
            return self._background.submit(self.run, {**(inputs or {}), **named})

    def session(self) -> Session:
        """A session: streams stay connected while the program steps through them."""
        from popc_runtime.session import Session  # with all kinds of sources and sinks

        self._check_open()
        return Session(self)

    def warmup(self, runs: int = 1) -> None:
        """Run on zeros, so that the first real run finds everything in place."""
        zeros = {spec.name: bytes(spec.nbytes) for spec in self.inputs}
        for _ in range(runs):
            self.run_buffers(zeros)

    def profile(self, inputs: Mapping[str, npt.ArrayLike]) -> list[InstructionTime]:
        """Run once and tell how long each instruction took."""
        feeds = self._check_inputs(inputs, "no")
        with self._lock:
            self._check_ready()
            try:
                self._run_lock.running = True
                self._connect(feeds, {})
                return self._engine.profile(MAIN_PROGRAM)
            finally:
                self._run_lock.running = False
                self._disconnect()

    def _check_inputs(
        self, given: Mapping[str, npt.ArrayLike], cast: str
    ) -> dict[str, Iterator[Array]]:
        from popc_runtime.data.arrays import check_arrays

        checked = check_arrays(given, self.inputs, self._streams, self._synthetic, cast)
        return {name: iter(samples) for name, samples in checked.items()}

    def _connect(
        self,
        samples: Mapping[str, Iterator[Any]],
        takers: Mapping[str, Callable[[memoryview], object]],
    ) -> None:
        for name, feed in self._feeds.items():
            feed.samples = samples[name]
        for name, result in self._results.items():
            result.take = takers.get(name, discard)

    def _disconnect(self) -> None:
        """Let go of the caller's memory."""
        for feed in self._feeds.values():
            feed.samples = iter(())
        for result in self._results.values():
            result.take = discard

    def run_connected(
        self,
        samples: Mapping[str, Iterator[Array]],
        takers: Mapping[str, Callable[[Array], object]],
    ) -> None:
        """One step on checked samples by input stream, results to ``takers`` by output stream.

        This is what `run` and sessions are made of; results of other streams are dropped.
        """
        from popc_runtime.data.arrays import array_taker

        wrapped = {name: array_taker(self._streams[name], take) for name, take in takers.items()}
        self._step(samples, wrapped)

    def _step(
        self,
        samples: Mapping[str, Iterator[Any]],
        takers: Mapping[str, Callable[[memoryview], object]],
    ) -> None:
        with self._lock:
            self._check_ready()
            start = perf_counter()
            try:
                self._run_lock.running = True
                self._connect(samples, takers)
                if self._counters:
                    self._counters.begin()
                self._engine.run(MAIN_PROGRAM)
                if self._counters:
                    self._counters.end()
            finally:
                self._run_lock.running = False
                self._disconnect()
            self._runs += 1
            self._run_seconds += perf_counter() - start

    def set_seed(self, seed: int) -> None:
        """Restart the device's random numbers; equal seeds give equal results."""
        with self._lock:
            self._engine.random.seed(seed)
            for made_up in self._synthetic.values():
                made_up.seed(seed)

    # -- state -----------------------------------------------------------------------------------

    def stats(self) -> RunStats:
        """Counts and times so far."""
        with self._lock:
            return RunStats(self._bind_seconds, self._runs, self._run_seconds)

    def get_cycle_count(self, name: str = "") -> int:
        """Cycles that the last run would have taken on the target that the archive is for.

        Args:
            name: "" or "outer" for the whole program; "inner_ipu_0" and so on for what one IPU does
                in the innermost main loop (the whole program, if it has no loop).

        Raises:
            UsageError: nothing has run yet, the archive was compiled without
                ``instrument_with_hardware_cycle_counter``, or it does not count this.
        """
        return self._required_counters().cycle_count(name)

    def execution_report(self, *, total: bool = False) -> ExecutionReport:
        """The report on what the last run would have taken; with ``total``, on all runs so far.

        Raises:
            UsageError: see `get_cycle_count`.
        """
        return self._required_counters().report(total=total)

    def _required_counters(self) -> CycleCounters:
        if self._counters is None:
            raise UsageError(
                "the archive was compiled without cycle counters",
                hint="compile the model with instrument_with_hardware_cycle_counter = true",
            )
        return self._counters

    def stream(self, name: str) -> StreamSpec:
        """The data that moves through a stream."""
        return self._streams[name]

    def close(self) -> None:
        """Finish pending asynchronous runs and refuse new ones.

        Raises:
            UsageError: called from within a run, which pending ones wait for.
        """
        with self._lock:
            if self._run_lock.running and self._background.is_started:
                raise UsageError(
                    "a source, sink or signal handler cannot close the executable that calls it",
                    hint="close it after the run has ended",
                )
            self._background.refuse()
        try:
            self._background.finish()
        finally:
            with self._lock:
                self._closed = True

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

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("the executable is closed")

    def _check_ready(self) -> None:
        self._check_open()
        if self._run_lock.running:  # by this thread, which has the turn
            raise UsageError(
                "a source, sink or signal handler cannot run the executable that calls it",
                hint="load the archive a second time, and run the second executable",
            )
