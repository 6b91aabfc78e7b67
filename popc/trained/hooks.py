"""Functions and objects that are told of the steps of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from popc_runtime import Executable
    from popc_runtime.format import Array
    from popc_runtime.trainer import Progress, Trainer

__all__ = ["EndOfTraining", "Hook", "StepWatch", "TrainingHook", "WatchedTraining"]

# Called after each step with the number of steps so far and the loss; True ends the training.
Hook: TypeAlias = Callable[[int, float], object]


class WatchedTraining(Protocol):
    """An estimator, as hooks know it: see `popc.Estimator`."""

    executable: Executable
    step: int
    results: Mapping[str, Array]
    save_every: tuple[int | None, float | None]

    def save(self, progress: Progress | None = None) -> object:
        """Write a checkpoint."""
        ...

    def told_by_first(self, what: str, question: Callable[[], bool]) -> bool:
        """The answer of the first process, for all that train together."""
        ...


class TrainingHook:
    """A hook that is also told where a training begins and ends."""

    def begin(self, estimator: WatchedTraining) -> None:
        """Called before the first step; ``estimator.results`` are those of the last one then."""

    def __call__(self, step: int, loss: float) -> object:
        """Called after each step; True ends the training."""
        del step, loss
        return None

    def end(self) -> None:
        """Called when a training has ended, but not by an exception."""


class EndOfTraining(Exception):
    """Raised between two steps when there are to be no more."""


class StepWatch:
    """Told of each step: counts, calls hooks, writes checkpoints, and ends the training.

    Attributes:
        trainer: Makes the steps.
        last: The number of the step after which the training ends; ``None``: the trainer says.
        loss: That of the last step.
    """

    def __init__(self, estimator: WatchedTraining, hooks: Sequence[Hook]) -> None:
        self._estimator = estimator
        self._hooks = hooks
        self._saved = monotonic()
        self.trainer: Trainer | None = None
        self.last: int | None = None
        self.loss: float | None = None

    def begin(self) -> None:
        """Tell the hooks that want to know."""
        for hook in self._hooks:
            if isinstance(hook, TrainingHook):
                hook.begin(self._estimator)

    def end(self) -> None:
        """Tell the hooks that want to know."""
        for hook in self._hooks:
            if isinstance(hook, TrainingHook):
                hook.end()

    def __call__(self, _step: int, _steps: int, loss: float) -> None:
        """A step was made."""
        estimator, trainer = self._estimator, self.trainer
        assert trainer is not None, "it is what calls"
        estimator.step += 1
        estimator.results = trainer.results
        self.loss = loss
        ends = [bool(hook(estimator.step, loss)) for hook in self._hooks]
        if any(ends) or estimator.step == self.last:
            raise EndOfTraining
        if self._is_due():
            estimator.save(trainer.progress)
            self._saved = monotonic()

    def _is_due(self) -> bool:
        steps, seconds = self._estimator.save_every
        if steps is not None and self._estimator.step % steps == 0:
            return True
        if seconds is None:
            return False
        return self._estimator.told_by_first(
            "whether to save", lambda: monotonic() - self._saved >= seconds
        )
