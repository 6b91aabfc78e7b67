"""Options that every verb shares that compiles a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from popc.inputs.arguments import parse_bindings, parse_dims, parse_shapes, read_stdin
from popc_runtime.errors import UsageError

if TYPE_CHECKING:
    from popc.frontend import ModelSource
    from popc.options import Options
    from popc.request import CompileRequest

__all__ = [
    "ModelSettings",
    "model_argument",
    "model_options",
    "read_source",
    "refuse_model_settings",
    "target_option",
    "train_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The user's settings for a model, as given on the command line."""

    options: Path | None
    set_: tuple[str, ...]
    shape: tuple[str, ...]
    dim: tuple[str, ...]
    bind: tuple[str, ...]
    outputs: str

    def with_settings(self, *items: str) -> ModelSettings:
        """With more items ``key=value``, as if by --set."""
        return replace(self, set_=(*self.set_, *items))

    def on_target(self, target: str | None) -> ModelSettings:
        """With another target, if one is given."""
        return self if target is None else self.with_settings(f"target={target}")

    @property
    def is_empty(self) -> bool:
        """True if nothing is set."""
        return not any(getattr(self, field.name) for field in fields(self))

    def as_given(self, folder: str, train: Path | None) -> dict[str, object]:
        """The settings as they were given, with the content of files; ``folder`` is the cache.

        Raises:
            ResourceError: a file cannot be read.
        """
        from popc.caching.quick import given_file

        arrays = [item for item in self.bind if item.endswith((".npy", ".npz"))]
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "options": None if self.options is None else given_file(self.options, folder),
            "train": None if train is None else given_file(train, folder),
            "arrays": [given_file(item.partition("=")[2], folder) for item in arrays],
        }

    def resolve(self) -> Options:
        """The effective options.

        Raises:
            OptionError: lists every problem.
        """
        from popc.options import resolve_options
        from popc.transforms import excludable_passes, optional_passes

        return resolve_options(
            cli=self.set_,
            env=os.environ,
            file=self.options,
            pass_names=optional_passes(),
            excludable=excludable_passes(),
        )

    def request(self, model: ModelSource, train: Path | None = None) -> CompileRequest:
        """The request for a model.

        Raises:
            OptionError: options or the training file are wrong; lists every problem.
            UsageError: arguments have no meaning.
        """
        from popc.request import CompileRequest

        return CompileRequest.of(
            model,
            options=self.resolve(),
            shapes=parse_shapes(self.shape),
            dims=parse_dims(self.dim),
            bind=parse_bindings(self.bind),
            outputs=tuple(name for name in self.outputs.split(",") if name),
            train=train,
        )


model_argument = click.argument(
    "model", type=click.Path(path_type=Path, exists=True, allow_dash=True)
)
target_option = click.option(
    "--target",
    metavar="NAME",
    help="Target to compile for: a name listed by `popc targets`, or a TOML file.",
)


def train_option(help_: str) -> Callable[[_F], _F]:
    """The option ``--train``; ``help_`` says what the verb does with the training file."""
    return click.option(
        "--train",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help=help_,
    )


def refuse_model_settings(settings: ModelSettings, train: Path | None) -> None:
    """Refuse settings for a model where an archive is given.

    Raises:
        UsageError: there are some.
    """
    if train is not None or not settings.is_empty:
        raise UsageError(
            "compiler options apply to models only; this archive is already compiled",
            hint="give the model instead, or leave the options out",
        )


def read_source(model: Path) -> Path | bytes:
    """The model as `popc.compile` takes it: - stands for the bytes on stdin."""
    return read_stdin() if str(model) == "-" else model


def model_options(function: _F) -> _F:
    """Add the shared options; the command receives them as one argument, ``settings``."""

    @wraps(function)
    def command(**values: Any) -> Any:
        names = ("options", "set_", "shape", "dim", "bind", "outputs")
        settings = ModelSettings(**{name: values.pop(name) for name in names})
        return function(settings=settings, **values)

    decorated: Any = command
    for decorator in reversed(
        (
            click.option(
                "--options",
                type=click.Path(path_type=Path, exists=True, dir_okay=False),
                metavar="FILE",
                help="Options as TOML or JSON (see `popc options`).",
            ),
            click.option(
                "--set",
                "set_",
                multiple=True,
                metavar="KEY=VALUE",
                help="Set one option; overrides the file and the environment.",
            ),
            click.option(
                "--shape",
                multiple=True,
                metavar="NAME=DIMS",
                help="Shape of an input, as in x=1,3,224,224.",
            ),
            click.option(
                "--dim",
                multiple=True,
                metavar="NAME=SIZE",
                help="Value of a symbolic dimension, as in N=4.",
            ),
            click.option(
                "--bind",
                multiple=True,
                metavar="NAME=VALUE",
                help="Make an input a constant: a number, 1,2,3, a .npy file, or a .npz file "
                "(a tensor takes the array of its name, a sequence takes all arrays).",
            ),
            click.option(
                "--outputs",
                default="",
                metavar="A,B",
                help="Return these tensors instead of the model's outputs.",
            ),
        )
    ):
        decorated = decorator(decorated)
    return cast("_F", decorated)
