"""Whose turn it is with an executable."""

from __future__ import annotations

from _thread import RLock  # what `threading` has more is not needed, and takes its time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.ground.hints import TYPE_CHECKING, Any, TypeVar
from popc_runtime.process.forks import forget_in_children, free
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from popc_runtime.process.futures import AwaitableFuture

__all__ = ["Background", "RunLock"]

_T = TypeVar("_T")


class RunLock:
    """A lock that a thread which has it may take again, and whether that thread is within a run.

    A run that forks goes on in the child too; that of another thread does not exist there.

    Attributes:
        lock: Always the same object: others keep it too.  It is not wrapped, so that Ctrl-C cannot
            come between taking it and having it.
        running: Whether the thread that has the lock is within a run.
        closed: Whether there are to be no more runs.
        watch: What is known of the run that is going on.
        guard: Called before each run, to refuse it; ``None`` if nothing is to be looked at.
        is_torn: Whether the variables are partly those of a step that did not come to its end.
        calls: The number of calls that have begun to run programs.
        in_parts: Whether the call of the thread that has the lock makes several runs.
        runs, seconds: How many there were, and how long they took.
    """

    __slots__ = (
        *("__weakref__", "calls", "closed", "guard", "in_parts", "is_torn", "lock", "running"),
        *("runs", "seconds", "watch"),
    )

    def __init__(self, watch: RunWatch, guard: Callable[[], None] | None = None) -> None:
        self.guard = guard
        self.watch = watch
        self.is_torn = False
        self.lock = RLock()
        self.running = False
        self.closed = False
        self.calls = 0
        self.in_parts = False
        self.runs = 0
        self.seconds = 0.0
        forget_in_children(self)

    def check_open(self) -> None:
        """Check that there may be runs.

        Raises:
            DeviceError: there may not.
        """
        if self.closed:
            raise DeviceError("the executable is closed")

    def check_ready(self) -> None:
        """Check that the thread that has the lock may start a run.

        Raises:
            DeviceError: there are to be no more runs, or variables are torn.
            UsageError: it is within one.
            ResourceError: weights have changed that are mapped.
        """
        if self.closed or self.is_torn or self.running or self.guard is not None:
            self._check_each()

    def _check_each(self) -> None:
        self.check_open()
        self.check_whole()
        if self.running:  # by this thread, which has the turn
            raise UsageError(
                "a source, sink or signal handler cannot run the executable that calls it",
                hint="load the archive a second time, and run the second executable",
            )
        if self.guard is not None:
            self.guard()

    def check_whole(self) -> None:
        """Check that the variables are those between two steps.

        Raises:
            DeviceError: they are not.
        """
        if self.is_torn:
            raise DeviceError(
                "the last step was stopped or failed while it wrote variables: some have new "
                "values, and others have not",
                hint="restore them: load a checkpoint, write all of them, or call state.reset()",
            )

    def begin(self) -> None:
        """Begin a run, for a thread that has the lock; see `check_ready` for errors."""
        self.check_ready()
        self.calls += not self.in_parts

    def in_one_call(self, run: Callable[[], _T]) -> _T:
        """The result of ``run``, which makes several runs for one call."""
        with self.lock:
            self.begin()
            self.in_parts = True
            try:
                return run()
            finally:
                self.in_parts = False

    @contextmanager
    def turn(self, allowed: int = 0, *, counts: bool = True) -> Iterator[None]:
        """The block is a run, which may take ``allowed`` nanoseconds; 0 for as long as it takes.

        Unless it ``counts``, nobody is told of it afterwards.

        Raises:
            DeviceError, UsageError: see `check_ready`.
        """
        with self.lock:
            self.begin() if counts else self.check_ready()
            self.watch.begin(allowed)
            start = perf_counter()
            try:
                self.running = True
                yield
            except BaseException:
                self.is_torn = bool(self.watch.touched[0])
                raise
            finally:
                self.running = False
            if counts:
                self.runs += 1
                self.seconds += perf_counter() - start

    def run(self, call: Callable[..., _T], *arguments: object) -> _T:
        """The result of a call that runs a program; ``None`` says that nothing has run.

        Raises:
            DeviceError, UsageError: see `check_ready`; and whatever the call does.
        """
        with self.lock:
            self.check_ready()
            try:
                start, self.running = perf_counter(), True
                self.watch.touched[0] = 0
                result = call(*arguments)
            except BaseException:
                self.is_torn = bool(self.watch.touched[0])
                raise
            finally:
                self.running = False
            if result is not None:
                self.runs += 1
                self.seconds += perf_counter() - start
            return result

    def forget_threads(self) -> None:
        """See `forget_in_children`."""
        if free(self.lock):
            self.running = self.in_parts = False


class Background:
    """A thread that makes calls in their order; a child starts its own.

    To be used by one thread at a time, except for `finish`.
    """

    __slots__ = ("__weakref__", "_refuses", "_worker")

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._refuses = False
        forget_in_children(self)

    @property
    def is_started(self) -> bool:
        """True if there is a thread."""
        return self._worker is not None

    def submit(self, call: Callable[..., Any], *args: object) -> AwaitableFuture:
        """Make a call after all others.

        Raises:
            DeviceError: calls are refused.
        """
        if self._refuses:
            raise DeviceError("the executable is closed")
        from popc_runtime.process.futures import submit  # slow to import, rarely used

        if self._worker is None:
            from concurrent.futures import ThreadPoolExecutor

            self._worker = ThreadPoolExecutor(1, thread_name_prefix="popc-run")
        return submit(self._worker, call, args)

    def refuse(self) -> None:
        """Take no more calls."""
        self._refuses = True

    def finish(self) -> None:
        """Wait until all calls have been made."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)

    def forget_threads(self) -> None:
        """See `forget_in_children`."""
        self._worker = None
