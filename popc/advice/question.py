"""What is compiled, and how it may be changed.

A `Question` holds everything that `popc.compile` takes, in a form that other processes can be
given; a `Change` holds other options or dimensions for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from popc.api import TrainingSource, bind_training, make_bindings, make_training
from popc.compiler import Compilation, run_stages
from popc.frontend import LoadedModel, ModelSource
from popc.options import Options, changed_options
from popc.progress import OnProgress, Stage
from popc.training import TrainingSettings
from popc_runtime.format import Origin

if TYPE_CHECKING:
    from popc.target import Target

__all__ = ["Change", "Question", "ask"]


@dataclass(frozen=True, slots=True)
class Question:
    """A model and what is fixed about it; the arguments of `popc.compile`."""

    model: ModelSource
    options: Options
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    bind: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: Sequence[str] = ()
    training: TrainingSettings | None = None

    def is_set(self, name: str) -> bool:
        """Whether the user has chosen the value of an option."""
        return self.options.origin(name) is not Origin.DEFAULT

    @property
    def target(self) -> Target:
        """The target, as far as the program uses it."""
        from popc.estimation import target_of

        return target_of(self.options)

    def compiled(
        self,
        loaded: LoadedModel,
        *,
        stop_after: Stage = Stage.PLAN,
        on_progress: OnProgress | None = None,
    ) -> Compilation:
        """What the stages make of it.

        Raises:
            PopcError: see `popc.compiler.run_stages`.
        """
        bindings = make_bindings(self.options, self.shapes, self.dims, self.bind, self.outputs)
        return run_stages(
            loaded,
            bind_training(bindings, loaded, self.training, self.options),
            self.options,
            training=self.training,
            stop_after=stop_after,
            on_progress=on_progress,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """Other values of options, dimensions and shapes.

    Attributes:
        options: Values as a file would give them, by name.
        dims: Sizes of symbolic dimensions, by name.
        shapes: Shapes of inputs, by name.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __bool__(self) -> bool:
        return bool(self.options or self.dims or self.shapes)

    def __add__(self, other: Change) -> Change:
        """Both; where they disagree, the other one."""
        return Change(
            {**self.options, **other.options},
            {**self.dims, **other.dims},
            {**self.shapes, **other.shapes},
        )

    def applied(self, question: Question) -> Question:
        """The question with the change made.

        Raises:
            OptionError: the options do not go together.
        """
        return replace(
            question,
            options=changed_options(question.options, self.options),
            dims={**question.dims, **self.dims},
            shapes={**question.shapes, **self.shapes},
        )

    def arguments(self) -> Iterator[str]:
        """As arguments of the command line; none for options that are left out."""
        for name, value in self.options.items():
            entries = value.items() if isinstance(value, Mapping) else ()
            for key, entry in entries:
                yield from ("--set", f"{name}.{key}={_text(entry)}")
            if not entries and value is not None:
                yield from ("--set", f"{name}={_text(value)}")
        for name, size in self.dims.items():
            yield from ("--dim", f"{name}={size}")
        for name, shape in self.shapes.items():
            yield from ("--shape", f"{name}={','.join(map(str, shape))}")

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without what is empty."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        parts = {"options": dict(self.options), "dims": dict(self.dims), "shapes": shapes}
        return {name: part for name, part in parts.items() if part}


def _text(value: object) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        tables = any(isinstance(one, Mapping) for one in value)
        return json.dumps(value) if tables else ",".join(map(str, value))
    return str(value)


def ask(
    model: ModelSource,
    *,
    options: Options,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    train: TrainingSource | None = None,
) -> Question:
    """A question from the arguments of `popc.compile`."""
    return Question(
        model, options, shapes or {}, dims or {}, bind or {}, outputs, make_training(train)
    )
