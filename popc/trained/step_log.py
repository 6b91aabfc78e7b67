"""Lines about a training: every so many steps or seconds, and at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from popc.trained.hooks import TrainingHook, WatchedTraining
from popc_runtime.errors import UsageError

__all__ = ["StepLog"]


class StepLog(TrainingHook):
    """A hook that writes the step, the loss, steps per second, and tensors that are asked for.

    estimator.train(data, hooks=[popc.StepLog(every_seconds=10, tensors=["accuracy"])])
    """

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        at_end: bool = False,
        tensors: Sequence[str] = (),
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
        write: Callable[[str], object] = print,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Say when to write.

        Args:
            every_steps: After how many steps; the first line is about the first step.
            every_seconds: After which time; in place of ``every_steps``.
            at_end: Whether to write when the training ends, about its last step.
            tensors: Further outputs of the program that trains: see ``anchors``.
            formatter: Makes the line, of values by name: step, loss, steps_per_second, tensors.
            write: Gets the line.
            clock: Tells the seconds.

        Raises:
            UsageError: both, or neither, of steps and seconds are given, or one is not positive.
        """
        if every_steps is not None and every_seconds is not None:
            raise UsageError("every_steps and every_seconds exclude each other")
        if every_steps is None and every_seconds is None and not at_end:
            raise UsageError(
                "a log has to know when to write", hint="give every_steps, every_seconds or at_end"
            )
        if any(given is not None and given <= 0 for given in (every_steps, every_seconds)):
            raise UsageError("every_steps and every_seconds must be positive")
        self._every = (every_steps, every_seconds)
        self._at_end = at_end
        self._tensors = tuple(tensors)
        self._formatter = formatter or _line
        self._write = write
        self._clock = clock
        self._estimator: WatchedTraining | None = None
        self._first: int | None = None
        self._written = (0, 0.0)  # the step that was told last, and when
        self._last = (0, 0.0)  # the last step, and its loss

    def begin(self, estimator: WatchedTraining) -> None:
        """Look whether the tensors exist.

        Raises:
            UsageError: the program that trains does not return one of them.
        """
        names = [spec.name for spec in estimator.executable.outputs]
        unknown = [name for name in self._tensors if name not in names]
        if unknown:
            raise UsageError(
                f"the program that trains returns no {unknown[0]!r}",
                hint=f"it returns {', '.join(names)}: outputs=[...] and anchors name others",
            )
        self._estimator, self._first = estimator, None
        self._written = (estimator.step, self._clock())

    def __call__(self, step: int, loss: float) -> None:
        """Write, if it is time to."""
        steps, seconds = self._every
        self._first = step if self._first is None else self._first
        if steps is not None:
            due = (step - self._first) % steps == 0
        else:
            due = seconds is not None and self._clock() - self._written[1] >= seconds
        if due:
            self._tell(step, loss)
        self._last = (step, loss)

    def end(self) -> None:
        """Write about the last step, if that is wanted and has not been done."""
        if self._at_end and self._first is not None and self._written[0] != self._last[0]:
            self._tell(*self._last)

    def _tell(self, step: int, loss: float) -> None:
        assert self._estimator is not None, "a training has begun"
        now = self._clock()
        before, when = self._written
        rate = (step - before) / (now - when) if now > when else 0.0
        results = self._estimator.results
        values = {"step": step, "loss": loss, "steps_per_second": rate}
        self._write(self._formatter({**values, **{name: results[name] for name in self._tensors}}))
        self._written = (step, now)


def _line(values: Mapping[str, Any]) -> str:
    known = ("step", "loss", "steps_per_second")
    more = "".join(f", {name} = {value}" for name, value in values.items() if name not in known)
    step, loss, rate = (values[name] for name in known)
    return f"step {step:,}: loss {loss:.6g}, {rate:.1f} steps/s{more}"
