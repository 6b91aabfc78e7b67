"""One compilation as a value: the model, and everything that is fixed about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeAlias, TypedDict, Unpack

from popc.frontend import (
    Annotations,
    Bindings,
    Converter,
    ImportLimits,
    LoadedModel,
    ModelSource,
    RecomputeRequests,
    TrainingBindings,
    given_dims,
    given_model,
    given_names,
    given_shapes,
    given_values,
    load_model,
)
from popc.ir import TensorType
from popc.options import (
    Options,
    did_you_mean,
    ignored_places,
    refuse_training_options,
    resolve_options,
)
from popc.progress import UNWATCHED, Watch
from popc.transforms import excludable_passes, optional_passes
from popc_runtime.errors import UsageError
from popc_runtime.format import Origin
from popc_runtime.ground.frozen import frozen, replace

if TYPE_CHECKING:
    from popc.training import TrainingSettings

__all__ = [
    "CompileKeywords",
    "CompileRequest",
    "OptionsSource",
    "TrainingSource",
    "make_options",
    "make_training",
]

# What `popc.compile` takes as ``options``.
OptionsSource: TypeAlias = "Options | Mapping[str, object] | str | os.PathLike[str]"

# What it takes as ``train``.
TrainingSource: TypeAlias = "TrainingSettings | Mapping[str, Any] | str | os.PathLike[str]"


class CompileKeywords(TypedDict, total=False):
    """The keyword arguments that say what is compiled.

    Attributes:
        options: Options by name, the path of a TOML or JSON file, or `make_options`' result.
        shapes: Shapes of inputs by name; needed where the model leaves dimensions open.
        dims: Values of symbolic dimensions by their names in the model.
        bind: Inputs that become constants, by name; a list for a sequence.  Of arrays by name, as
            `numpy.load` gives them, a tensor takes the one of its own name and a sequence all.
        outputs: Names of the tensors to return; if not given, those of the model, or the loss
            alone if it is trained.
        train: How to train the model: the path of a TOML or JSON file with the tables ``loss``,
            ``optimizer`` and perhaps ``weights``, or a mapping of these.
        loss: In place of ``train``, the table ``loss``, or the name of a tensor that is the loss.
        optimizer: In place of ``train``, the table ``optimizer``.
        meta: Notes by name, which the archive keeps: a ticket, a data set, an author.
    """

    options: OptionsSource | None
    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    bind: Mapping[str, Any] | None
    outputs: Sequence[str]
    train: TrainingSource | None
    loss: Mapping[str, Any] | str | None
    optimizer: Mapping[str, Any] | None
    meta: Mapping[str, str] | None


@frozen
class CompileRequest:
    """A model and what is fixed about it, checked as far as that needs no look at the model.

    It can be pickled if its model can: searches hand it to other processes.

    Attributes:
        model: Where the model is.
        options: The effective options.
        shapes, dims, bind, outputs: See `CompileKeywords`.
        training: How to train it; ``None`` if it is not trained.
        meta: See `CompileKeywords`.
        variables: Weights that are variables although the program does not train, because another
            program of the same archive trains them.
    """

    model: ModelSource
    options: Options
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    bind: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[str, ...] = ()
    training: TrainingSettings | None = None
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: ModelSource | BinaryIO, **keywords: Unpack[CompileKeywords]) -> Self:
        """A request from the arguments of `popc.compile`.

        Raises:
            OptionError: options or the training file are wrong; lists every problem.
            UsageError: ``train`` is given beside ``loss`` or ``optimizer``, a note is no text, or
                an argument is of another kind than it has to be.
            TypeError: there is no such keyword.
        """
        _refuse_unknown(keywords)
        training = make_training(
            keywords.get("train"), keywords.get("loss"), keywords.get("optimizer")
        )
        given = keywords.get("options")
        trains = training is not None
        _refuse_other_mode(given, trains=trains)
        options = given if isinstance(given, Options) else make_options(given, trains=trains)
        if training is not None:
            from popc.training import with_requests

            training = with_requests(training, options.foreign.training)
        return cls(
            given_model(model),
            options,
            given_shapes(keywords.get("shapes")),
            given_dims(keywords.get("dims")),
            given_values(keywords.get("bind")),
            given_names(keywords.get("outputs", ())),
            training,
            _notes(keywords.get("meta") or {}),
        )

    @property
    def trains(self) -> bool:
        """True if the program is a training step."""
        return self.training is not None

    def is_set(self, name: str) -> bool:
        """True if the user has chosen the value of an option."""
        return self.options.origin(name) is not Origin.DEFAULT

    def with_options(self, options: Options) -> Self:
        """The same with other options."""
        return replace(self, options=options)

    def load(self, watch: Watch = UNWATCHED) -> LoadedModel:
        """Load the model; one of another framework is converted, of which ``watch`` is told.

        Raises:
            ModelError: it is no valid ONNX model, or cannot be converted to one.
            OptionError, UsageError: it cannot be converted as the options say.
            ResourceError: it cannot be read.
        """
        options = self.options
        converter = Converter(options.converter_python, options.onnx_folder, watch)
        return load_model(self.model, converter=converter, keeps_weights=True)

    def _sizes(self, loaded: LoadedModel) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
        """Shapes and dimensions by name, with the option ``batch_size`` where nothing else is."""
        shapes = {name: tuple(shape) for name, shape in self.shapes.items()}
        dims = dict(self.dims)
        size = self.options.batch_size
        if not size:
            return shapes, dims
        for name, dim in loaded.leading_dims().items():
            if name in shapes or name in self.bind:
                continue
            if dim:
                dims.setdefault(dim, size)
                continue
            rest = [dim for dim in loaded.fixed_dims(name)[1:] if dim is not None]
            if len(rest) == len(loaded.fixed_dims(name)) - 1:
                shapes[name] = (size, *rest)
        return shapes, dims

    def bindings(self, loaded: LoadedModel) -> Bindings:
        """The bindings of the model that was loaded; anchored tensors become outputs.

        Raises:
            OptionError: options are given that only training uses.
        """
        shapes, dims = self._sizes(loaded)
        plain = Bindings(
            shapes=shapes,
            dims=dims,
            values=self.bind,
            outputs=self.outputs,
            anchors=tuple(self.options.anchors),
            replicas=self.options.replicated_graph_count,
            annotations=_annotations(self.options),
            limits=ImportLimits(self.options.max_imported_nodes, self.options.max_computed_bytes),
            bounds=self.options.bounds,
            outlined=self.options.outlined_functions,
            states=self.options.states,
            nchwc_block_size=int(self.options.nchwc_block_size),
        )
        if self.training is not None:
            return _bound_for_training(plain, loaded, self.training, self.options)
        refuse_training_options(self.options)
        if self.variables:
            names = frozenset(self.variables)
            policy = TrainingBindings(
                lambda name, type_: name in names and type_.rank >= 0, named=True, trains=False
            )
            return replace(plain, training=policy)
        if self.options.constant_weights:
            return plain
        return replace(plain, training=TrainingBindings(_has_dimensions, trains=False))


def _refuse_unknown(keywords: Mapping[str, object]) -> None:
    for name in keywords:
        if name not in CompileKeywords.__annotations__:
            guess = did_you_mean(name, CompileKeywords.__annotations__)
            raise TypeError(
                f"compile() got an unexpected keyword argument {name!r}"
                + (f"; {guess}" if guess else "")
            )


def _refuse_other_mode(options: object, *, trains: bool) -> None:
    """Refuse options that were translated for training where there is none, or the other way."""
    foreign = options.foreign if isinstance(options, Options) else None
    if foreign is not None and foreign.dialect and foreign.trains != trains:
        made, now = ("training", "inference") if foreign.trains else ("inference", "training")
        raise UsageError(
            f"the options were made of those of {foreign.dialect} for {made}, but the program is "
            f"for {now}",
            hint=f"popc.make_options(settings, trains={trains}), or hand the settings over",
        )


def _notes(meta: Mapping[str, object]) -> dict[str, str]:
    wrong = [name for name, note in meta.items() if not isinstance(note, str) or not name]
    if wrong:
        raise UsageError(f"meta: the note {wrong[0]!r} is not text with a name")
    return {name: str(note) for name, note in meta.items()}


def _annotations(options: Options) -> Annotations:
    ignored = tuple(ignored_places(options).items())
    of_nodes = tuple(rule for rule in options.annotate if not rule.is_by_place)
    return Annotations(of_nodes, excludable_passes(), ignored)


def _has_dimensions(name: str, type_: TensorType) -> bool:
    """Scalars stay constants: exporters keep numbers of formulas in them."""
    del name
    return type_.rank > 0


def _bound_for_training(
    bindings: Bindings, loaded: LoadedModel, training: TrainingSettings, options: Options
) -> Bindings:
    """``bindings`` with the weights that become variables, and the tensors that training needs."""
    from popc.training import needed_names, training_anchors

    plain, _ = training_anchors(bindings.anchors, training.loss.name)
    known = dict.fromkeys([*loaded.tensor_names(), *(info.name for info in loaded.inputs)])
    needed = needed_names(training, bindings.anchors, known)
    return replace(
        bindings,
        anchors=tuple(plain),
        model_outputs=False,
        training=TrainingBindings(
            training.is_trainable,
            needed,
            named=bool(training.trainable),
            recompute=RecomputeRequests(
                options.auto_recomputation, options.recompute, options.checkpoints
            ),
        ),
    )


def make_options(
    source: Mapping[str, object] | str | os.PathLike[str] | None = None,
    *,
    trains: bool = False,
) -> Options:
    """Resolve options from a mapping or a file, and from POPC_* environment variables.

    ``trains``: whether they are for a program that trains.  Only settings of other systems, which
    have some for training and some for inference, ask.

    Raises:
        OptionError: lists every problem.
    """
    values = source if isinstance(source, Mapping) else None
    file = None if source is None or isinstance(source, Mapping) else source
    return resolve_options(
        values=values,
        file=file,
        env=os.environ,
        pass_names=optional_passes(),
        excludable=excludable_passes(),
        trains=trains,
    )


def make_training(
    train: TrainingSource | None = None,
    loss: Mapping[str, Any] | str | None = None,
    optimizer: Mapping[str, Any] | None = None,
) -> TrainingSettings | None:
    """The settings of training, from whatever `popc.compile` takes; ``None`` for a model as it is.

    Raises:
        OptionError: lists every problem.
        UsageError: both ``train`` and one of the others are given, or only one of them.
    """
    if train is None and loss is None and optimizer is None:
        return None
    from popc.training import TrainingSettings, parse_training, read_training_file

    if train is not None:
        if loss is not None or optimizer is not None:
            raise UsageError("train already names loss and optimizer: do not give them as well")
        if isinstance(train, TrainingSettings):
            return train
        return parse_training(train) if isinstance(train, Mapping) else read_training_file(train)
    tables = {
        "loss": {"type": "identity", "input": loss} if isinstance(loss, str) else loss,
        "optimizer": optimizer,
    }
    return parse_training({key: value for key, value in tables.items() if value is not None})
