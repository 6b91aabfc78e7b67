"""A loaded archive, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter

from popc_runtime.data.calls import inputs_by_name
from popc_runtime.data.mismatches import check_stored
from popc_runtime.data.ports import SwitchedInput, SwitchedOutput, discard
from popc_runtime.device import InstructionTime, Ports
from popc_runtime.errors import UsageError
from popc_runtime.executable_parts import (
    bfloat16_numbers,
    chosen_checks,
    chosen_counters,
    chosen_program,
    cycle_counters,
    dispatch_of,
    make_engine,
    output_sizes,
    stream_names,
    streams_by_name,
    synthetic_inputs,
    telling,
)
from popc_runtime.format import MAIN_PROGRAM, Array, Manifest, ProgramImage
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.process.run_lock import Background, RunLock
from popc_runtime.process.watch import RunWatch, nanoseconds_of
from popc_runtime.runnable import Runnable, RunStats

if TYPE_CHECKING:
    import numpy.typing as npt

    from popc_runtime.cycles.counters import CycleCounters
    from popc_runtime.cycles.execution import CycleProfile
    from popc_runtime.data.tensors import ResultTensor
    from popc_runtime.dispatch import Dispatch
    from popc_runtime.groups import ReplicaShare
    from popc_runtime.native import DirectRun
    from popc_runtime.process.futures import AwaitableFuture
    from popc_runtime.recipe import Recipe
    from popc_runtime.session import Session
    from popc_runtime.state.device_state import DeviceState

__all__ = ["Executable", "RunStats"]


class Executable(Runnable):
    """A program with its weights in memory.

    Thread-safe: any thread may call any method.  Runs of one executable wait for each other,
    because they share one arena; for parallel runs, load the archive once per thread.  A run cannot
    be started from within another one (by a source, a sink or a signal handler).
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
        profiles: Mapping[str, CycleProfile] | None = None,
        engine: str = "auto",
        numbers: bool = False,
        recipe: Recipe | None = None,
        timeout: float | None = None,
        guard: Callable[[], None] | None = None,
        share: ReplicaShare | None = None,
        host_calls: Mapping[str, Callable[..., Any]] | None = None,
        bind_late: bool = False,
    ) -> None:
        start = perf_counter()
        self.recipe, self.share = recipe, share
        self._bfloat16 = bfloat16_numbers() if numbers else None
        self._synthetic = synthetic_inputs(manifest, seed)
        inputs, outputs = stream_names(manifest)
        self._ends = {name: SwitchedInput() for name in inputs if name not in self._synthetic}
        self._takers = {name: SwitchedOutput() for name in outputs}
        ports = Ports({**self._ends, **self._synthetic}, self._takers, host_calls or {})
        watch = RunWatch()
        watch.begin(nanoseconds_of(timeout))
        self._engine = make_engine(
            manifest,
            image,
            constants,
            ports,
            seed=seed,
            threads=threads,
            checks=chosen_checks(manifest, given=floating_point_checks),
            counted=tuple(profiles or ()),
            late=manifest.programs if bind_late else [each.name for each in manifest.variants],
            engine=engine,
            watch=watch,
            share=share,
        )
        self._counters = cycle_counters(profiles or {}, self._engine)
        self._run_lock, self._background = RunLock(watch, guard), Background()
        self._lock = self._run_lock.lock
        self._bind_seconds = perf_counter() - start
        self._describe(MAIN_PROGRAM, manifest)
        self._dispatch: Dispatch | None = dispatch_of(manifest, self._sibling, self._run_lock)

    def _describe(self, name: str, manifest: Manifest) -> None:
        """Be the program of this name."""
        self.name = name
        self.manifest = manifest
        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self._feeding, self._returning = streams_by_name(manifest)
        self._feeds = {
            spec.name: self._ends[spec.name] for spec in self.inputs if spec.name in self._ends
        }
        self._sizes = output_sizes(self.outputs)
        self._stored = (*self.outputs, *(self._sizes.specs if self._sizes else ()))
        self._results = {spec.name: self._takers[spec.name] for spec in self._stored}
        self._count = self._counters.get(name)

    def _sibling(self, name: str, manifest: Manifest) -> Executable:
        """Another program on the same memory, in the same turns."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _dispatch=None)
        made._describe(name, manifest)
        made.recipe = None if self.recipe is None else replace(self.recipe, program=name)
        return made

    @property
    def programs(self) -> tuple[Executable, ...]:
        """An executable for each program; all share memory, variables and turns."""
        return (self,) if self._dispatch is None else self._dispatch.programs

    def program(self, which: str | Mapping[str, Sequence[int]]) -> Executable:
        """The executable of one program, by its name or by shapes of its inputs.

        Raises:
            UsageError: there is no such program, or more than one.
        """
        return chosen_program(self.programs, which)  # type: ignore[no-any-return]

    @cached_property
    def state(self) -> DeviceState:
        """The tensors that live on the device from run to run.

        These are weights that are trained, and the optimizer's state and changeable numbers.
        """
        from popc_runtime.state.device_state import DeviceState

        return DeviceState(self._engine, self.manifest, self._run_lock)

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
        timeout: float | None = None,
        **named: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the main program once: one step of ``batches_per_step`` batches.

        Args:
            inputs: Arrays by input name; they may also be given as keyword arguments.  Where a
                step has several batches, inputs have a leading dimension for them; so for
                micro-batches, then for replicas.  Strings become the places of words among the
                labels of an input, -1 for any other.  Leave arrays as they are until this returns.
            out: Arrays to write results to, by output name, with any strides; other results are
                fresh arrays.
            cast: numpy casting rule for inputs of another dtype; "no" refuses them.
            timeout: Seconds after which the run is stopped, without those it waits for its turn.

        Returns:
            The results by output name.  bfloat16 tensors are uint16 arrays of bit patterns, unless
            `load` was asked for numbers.  Once nothing refers to them, later runs use their memory.

        Raises:
            InputMismatchError: inputs are missing, unknown or of another dtype or shape.
            UsageError: ``out`` has what is no output or cannot be written to, or this is called
                from within a run of the same executable.
            RunTimeoutError: it took longer than ``timeout``.
            DeviceError: an instruction failed.
        """
        given = named if inputs is None else inputs
        if self._direct and timeout is None and not (named and inputs is not None):
            done = self._run_lock.run(self._direct, given, out)
            if done is not None:
                return done if self._sizes is None else self._sizes.cut(done)
        from popc_runtime.data.arrays import check_targets, joined_results

        given = inputs_by_name(inputs, named)
        if self._dispatch is not None:
            return self._dispatch.run(given, out or {}, cast, timeout)
        checked = self._check_inputs(given, cast)
        targets = check_targets(out or {}, self.outputs)
        collected: dict[str, list[Array]] = {name: [] for name in self._results}
        takers = {name: samples.append for name, samples in collected.items()}
        self.run_connected(checked, takers, timeout, whole=True)
        results = joined_results(self._stored, self._returning, collected, targets, self._bfloat16)
        results = {**results, **(out or {})}  # the caller's own arrays, bfloat16 or not
        return results if self._sizes is None else self._sizes.cut(results)

    @cached_property
    def _direct(self) -> DirectRun | None:
        plain = self._dispatch is None and self._count is None and self._bfloat16 is None
        ready = plain and not self._synthetic
        return self._engine.direct(self.name, self.inputs, self._stored) if ready else None

    def run_buffers(
        self,
        inputs: Mapping[str, object] | None = None,
        /,
        *,
        timeout: float | None = None,
        **named: object,
    ) -> dict[str, ResultTensor]:
        """Run the main program once, without numpy: the shortest way from a file to a result.

        Args:
            inputs: As for `run`.  Each is contiguous memory, with the buffer protocol or an array
                interface: elements of the input's type in its shape or in one dimension, or, as
                ``bytes``, ``bytearray`` or a memoryview of bytes, the elements as they are stored.
            timeout: As for `run`.

        Returns:
            The results by output name.

        Raises:
            InputMismatchError: inputs do not fit; lists every problem.
            UsageError, RunTimeoutError, DeviceError: as `run` does.
        """
        from popc_runtime.data.tensors import ResultTensor, check_buffers

        given = inputs_by_name(inputs, named)
        if self._dispatch is not None:
            return self._dispatch.run_buffers(given, timeout)
        buffers = check_buffers(given, self.inputs, self._feeding, self._synthetic)
        collected = {name: bytearray() for name in self._results}
        self._step(
            {name: iter(samples) for name, samples in buffers.items()},
            {name: samples.extend for name, samples in collected.items()},
            timeout,
        )
        for spec in self._stored:
            check_stored(spec, len(collected[spec.name]), spec.nbytes, "bytes")
        if self._sizes is not None:
            return self._sizes.cut_buffers(collected)
        return {spec.name: ResultTensor(spec, collected[spec.name]) for spec in self.outputs}

    def run_async(
        self,
        inputs: Mapping[str, npt.ArrayLike] | None = None,
        /,
        *,
        timeout: float | None = None,
        **named: npt.ArrayLike,
    ) -> AwaitableFuture:
        """`run` in a background thread; runs are made in the order of the calls.

        The result is a future of `concurrent.futures` that coroutines can await.
        """
        given = inputs_by_name(inputs, named)
        with self._lock:
            self._run_lock.check_open()
            return self._background.submit(partial(self.run, timeout=timeout), given)

    def session(self) -> Session:
        """A session: streams stay connected while the program steps through them.

        Of an archive with several programs it is `main` that steps; `program` gives others.
        """
        from popc_runtime.session import Session  # with all kinds of sources and sinks

        self._run_lock.check_open()
        return Session(self)

    def profile(self, inputs: Mapping[str, npt.ArrayLike]) -> list[InstructionTime]:
        """Run once and tell how long each instruction took."""
        if self._dispatch is not None:
            return list(self._dispatch.required(inputs).profile(inputs))
        checked = self._check_inputs(inputs, "no")
        with self._run_lock.turn(counts=False), telling(self.group):
            try:
                self._connect(checked, {})
                return self._engine.profile(self.name)
            finally:
                self._disconnect()

    def _check_inputs(
        self, given: Mapping[str, npt.ArrayLike], cast: str
    ) -> dict[str, Iterator[Array]]:
        from popc_runtime.data.arrays import check_arrays

        checked = check_arrays(given, self.inputs, self._feeding, self._synthetic, cast)
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
        timeout: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """One step on checked samples by input stream, results to ``takers`` by output stream.

        This is what `run` and sessions are made of; results of other streams are dropped, and all
        are cut to the sizes that data decides, unless they are wanted ``whole``.
        """
        if self._sizes is not None and not whole:
            run = partial(self.run_connected, samples, timeout=timeout, whole=True)
            self._sizes.connected(takers, run)
            return
        from popc_runtime.data.arrays import array_taker

        wrapped = {name: array_taker(self._returning[name], take) for name, take in takers.items()}
        self._step(samples, wrapped, timeout)

    def _step(
        self,
        samples: Mapping[str, Iterator[Any]],
        takers: Mapping[str, Callable[[memoryview], object]],
        timeout: float | None = None,
    ) -> None:
        with self._run_lock.turn(nanoseconds_of(timeout)), telling(self.group):
            try:
                self._connect(samples, takers)
                if self._count:
                    self._count.begin(self._run_lock.calls)
                self._engine.run(self.name)
                if self._count:
                    self._count.end()
            finally:
                self._disconnect()

    def set_seed(self, seed: int) -> None:
        """Restart the device's random numbers; equal seeds give equal results."""
        with self._lock:
            self._engine.random.seed(seed)
            for made_up in self._synthetic.values():
                made_up.seed(seed)

    # -- state -----------------------------------------------------------------------------------

    def stats(self) -> RunStats:
        """Counts and times so far, of all programs."""
        with self._lock:
            return RunStats(self._bind_seconds, self._run_lock.runs, self._run_lock.seconds)

    def _required_counters(self, *, total: bool) -> list[CycleCounters]:
        return chosen_counters(
            self._counters, self.name, self._dispatch, None if total else self._run_lock.calls
        )

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
                self._run_lock.closed = True
