"""Options that every verb shares that compiles a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from popc.folders import model_file
from popc.inputs.arguments import (
    parse_alternatives,
    parse_bindings,
    parse_dims,
    parse_pads,
    parse_shapes,
    parse_sizes,
    read_stdin,
)
from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import field_names, frozen, replace
from popc_runtime.process.paths import is_url

if TYPE_CHECKING:
    from popc.frontend import ModelSource
    from popc.options import Options
    from popc.request import CompileRequest
    from popc.requests import Requests

__all__ = [
    "ModelSettings",
    "file_argument",
    "model_argument",
    "model_options",
    "read_source",
    "refuse_model_settings",
    "several_options",
    "target_option",
    "train_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@frozen
class ModelSettings:
    """The user's settings for a model, as given on the command line.

    Attributes:
        shapes, split, pad, evaluate: For verbs that take several programs; see `several_options`.
    """

    options: Path | None
    set_: tuple[str, ...]
    shape: tuple[str, ...]
    dim: tuple[str, ...]
    bind: tuple[str, ...]
    outputs: str
    shapes: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    pad: tuple[str, ...] = ()
    evaluate: bool = False

    def with_settings(self, *items: str) -> ModelSettings:
        """With more items ``key=value``, as if by --set."""
        return replace(self, set_=(*self.set_, *items))

    def on_target(self, target: str | None) -> ModelSettings:
        """With another target, if one is given."""
        return self if target is None else self.with_settings(f"target={target}")

    @property
    def is_empty(self) -> bool:
        """True if nothing is set."""
        return not any(getattr(self, name) for name in field_names(type(self)))

    def as_given(self, folder: str, train: Path | None) -> dict[str, object]:
        """The settings as they were given, with the content of files; ``folder`` is the cache.

        Raises:
            ResourceError: a file cannot be read.
        """
        from popc.caching.quick import given_file

        arrays = [item for item in self.bind if item.endswith((".npy", ".npz"))]
        return {
            **{name: getattr(self, name) for name in field_names(type(self))},
            "options": None if self.options is None else given_file(self.options, folder),
            "train": None if train is None else given_file(train, folder),
            "arrays": [given_file(item.partition("=")[2], folder) for item in arrays],
        }

    def resolve(self, *, trains: bool = False) -> Options:
        """The effective options, of a program that ``trains`` or of one that does not.

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
            trains=trains,
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
            options=self.resolve(trains=train is not None),
            shapes=parse_shapes(self.shape),
            dims=parse_dims(self.dim),
            bind=parse_bindings(self.bind),
            outputs=tuple(name for name in self.outputs.split(",") if name),
            train=train,
        )

    def requests(self, model: ModelSource, train: Path | None = None) -> Requests:
        """The requests for a model, one for each of several shapes.

        Raises:
            OptionError: options or the training file are wrong; lists every problem.
            UsageError: arguments have no meaning.
        """
        from popc.requests import several_requests

        common = parse_shapes(self.shape)
        shapes = [{**common, **own} for own in parse_alternatives(self.shapes) or [{}]]
        return several_requests(
            model,
            options=self.resolve(trains=train is not None),
            shapes=shapes,
            dims=parse_sizes(self.dim),
            bind=parse_bindings(self.bind),
            outputs=tuple(name for name in self.outputs.split(",") if name),
            train=train,
            split=self.split,
            pad=parse_pads(self.pad),
            evaluate=self.evaluate,
        )


class _ModelPath(click.Path):
    """The path of a file that exists; a folder stands for the model in it."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path as click gives it, or that of the model in the folder."""
        path = super().convert(value, param, ctx)
        return Path(model_file(path)) if isinstance(path, Path) else path


class _FilePath(_ModelPath):
    """The same, or a URL that fsspec opens, which is copied until the end of the process."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path of the file, or of the copy."""
        if is_url(value):
            from popc_runtime.format.remote import fetch, local_path

            url = os.fspath(value)
            value = local_path(url) or fetch(url, _folder())
        return super().convert(value, param, ctx)


@cache
def _folder() -> str:
    """A folder for copies, which is removed at the end."""
    import atexit
    import tempfile

    made = tempfile.TemporaryDirectory(prefix="popc-")
    atexit.register(made.cleanup)
    return made.name


model_argument = click.argument(
    "model", type=_ModelPath(path_type=Path, exists=True, allow_dash=True)
)
file_argument = click.argument("file", type=_FilePath(path_type=Path, exists=True))
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


_PAD_HELP: Final = (
    "Let inputs of other sizes be filled up to the next one; samples must not mix, or a mask among "
    "the inputs, filled up with the number, must leave out what is added."
)


def several_options(function: _F) -> _F:
    """Add the options about several programs to the ``settings`` that `model_options` collects."""

    @wraps(function)
    def command(settings: ModelSettings, **values: Any) -> Any:
        several = {name: values.pop(name) for name in ("shapes", "split", "pad", "evaluate")}
        return function(settings=replace(settings, **several), **values)

    decorated: Any = click.option(
        "--evaluate",
        is_flag=True,
        help="With --train: add a program, evaluation, that returns the model's outputs for the "
        "weights as they are.",
    )(command)
    for name, metavar, text in (
        (
            "--pad",
            "DIMENSION[:MASK=0,...]",
            _PAD_HELP,
        ),
        (
            "--split",
            "DIMENSION",
            "Let inputs of other sizes run in parts; samples must not mix.",
        ),
        (
            "--shapes",
            "NAME=DIMS;...",
            "Shapes of inputs, as in 'x=1,3;y=4', once for each program of the archive.",
        ),
    ):
        decorated = click.option(name, multiple=True, metavar=metavar, help=text)(decorated)
    return cast("_F", decorated)


def model_options(function: _F) -> _F:
    """Add the shared options; the command receives them as one argument, ``settings``."""

    @wraps(function)
    def command(**values: Any) -> Any:
        names = ("options", "set_", "shape", "dim", "bind", "outputs")
        more = [f"bounds.{item}" for item in values.pop("bound")]
        more += [f"states.{item}" for item in values.pop("state")]
        python = values.pop("converter_python")
        if python is not None:
            more.append(f"converter_python={python}")
        settings = ModelSettings(**{name: values.pop(name) for name in names})
        return function(settings=settings.with_settings(*more), **values)

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
                help="Value of a symbolic dimension, as in N=4; for compile several, as in "
                "N=1,2,4 or N=32..512:32.",
            ),
            click.option(
                "--bound",
                multiple=True,
                metavar="NAME=SIZE",
                help="The most that a size which data decides can be, by the tensor that has it, "
                "or a pattern; the most rows of caches, by their dimension.",
            ),
            click.option(
                "--state",
                multiple=True,
                metavar="INPUT=OUTPUT",
                help="An input that the program keeps from run to run, and its next value.",
            ),
            click.option(
                "--converter-python",
                type=click.Path(path_type=Path, exists=True, dir_okay=False),
                metavar="PATH",
                help="Python interpreter that converts a model of another framework to ONNX.",
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
