"""The Python interface of the compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from popc.archive import Archive, build_archive
from popc.budget import check_budget
from popc.compiler import Compilation, OnArtefact, OnGraph, run_stages
from popc.estimation import (
    check_target,
    chooses_target,
    costs_of,
    cycles_of,
    encode_report,
    require_fit,
)
from popc.frontend import (
    Annotations,
    Bindings,
    LoadedModel,
    ModelSource,
    RecomputeWishes,
    TrainingBindings,
    load_model,
)
from popc.ir import TensorType
from popc.options import Options, ignored_places, resolve_options
from popc.progress import OnProgress, Stage
from popc.training import (
    TrainingSettings,
    needed_names,
    parse_training,
    read_training_file,
    training_anchors,
)
from popc.transforms import excludable_passes, optional_passes
from popc_runtime.errors import OptionError, UsageError

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = [
    "bind_training",
    "compile_model",
    "estimate_model",
    "make_bindings",
    "make_options",
    "make_training",
]

# What `compile_model` takes as ``train``.
TrainingSource: TypeAlias = "TrainingSettings | Mapping[str, Any] | str | os.PathLike[str]"


def compile_model(
    model: ModelSource,
    *,
    options: Options | Mapping[str, object] | str | os.PathLike[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    train: TrainingSource | None = None,
    loss: Mapping[str, Any] | str | None = None,
    optimizer: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_artefact: OnArtefact | None = None,
    on_graph: OnGraph | None = None,
    against: str | os.PathLike[str] | None = None,
) -> Archive:
    """Compile an ONNX model.  Exported as ``popc.compile``.

    Args:
        model: Path of a model, its bytes, or the message itself.
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
        on_progress: Told when a stage begins and ends; may raise to cancel.
        on_artefact: Told the text form of what each stage made.
        on_graph: Shown the graph at each checkpoint, with the order of its ops where it is known.
        against: An archive; if the program exceeds its budget, the error says what has grown.

    Raises:
        ModelError: the model is not valid, or uses what popc cannot compile.
        OptionError: options are unknown, ill-typed or in conflict.
        UsageError: ``shapes``, ``dims``, ``bind`` or ``outputs`` do not fit the model.
        DoesNotFitError: a target was chosen, and the program does not fit it.
        BudgetError: it costs more than the option ``budget`` allows.
    """
    resolved = options if isinstance(options, Options) else make_options(options)
    check_target(resolved)
    training = make_training(train, loss, optimizer)
    loaded = load_model(model)
    bindings = make_bindings(resolved, shapes, dims, bind, outputs)
    bindings = bind_training(bindings, loaded, training, resolved)
    done = run_stages(
        loaded,
        bindings,
        resolved,
        training=training,
        on_progress=on_progress,
        on_artefact=on_artefact,
        on_graph=on_graph,
    )
    assert done.model is not None, "the last stage has run"
    assert done.plan is not None, "the last stage has run"
    assert done.image is not None, "the last stage has run"
    report, notes = _costs(done, resolved)
    archive = build_archive(
        loaded,
        done.model,
        done.plan,
        done.image,
        resolved,
        done.training,
        report,
        cycles_of(done, resolved),
    )
    archive.notes = (*done.model.notes, *notes)
    check_budget(done, archive, resolved, against)
    return archive


def _costs(done: Compilation, options: Options) -> tuple[bytes, tuple[str, ...]]:
    """The report that the archive gets, and warnings about it.

    Raises:
        DoesNotFitError: see `require_fit`.
    """
    if not options.cost_report and not chooses_target(options):
        return b"", ()
    costs = costs_of(done, options)
    warnings = require_fit(costs, options)
    return encode_report(costs) if options.cost_report or warnings else b"", warnings


def estimate_model(
    model: ModelSource,
    *,
    options: Options | Mapping[str, object] | str | os.PathLike[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    train: TrainingSource | None = None,
    on_progress: OnProgress | None = None,
) -> CostReport:
    """What a run of a model would cost on a target.  Exported as ``popc.estimate``.

    Arguments are those of `compile_model`; the options ``target``, ``num_ipus``,
    ``tiles_per_ipu``, ``available_memory_proportion`` and others say on what, and how.

    Raises:
        ModelError, OptionError, UsageError: as `compile_model`.
    """
    resolved = options if isinstance(options, Options) else make_options(options)
    check_target(resolved)
    training = make_training(train)
    loaded = load_model(model)
    bindings = make_bindings(resolved, shapes, dims, bind, outputs)
    done = run_stages(
        loaded,
        bind_training(bindings, loaded, training, resolved),
        resolved,
        training=training,
        stop_after=Stage.PLAN,
        on_progress=on_progress,
    )
    return costs_of(done, resolved)


def make_bindings(
    options: Options,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
) -> Bindings:
    """What is fixed about a model: see `compile_model`; anchored tensors become outputs."""
    return Bindings(
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims=dict(dims or {}),
        values=dict(bind or {}),
        outputs=tuple(outputs),
        anchors=tuple(options.anchors),
        replicas=options.replicated_graph_count,
        annotations=_annotations(options),
    )


def _annotations(options: Options) -> Annotations:
    ignored = tuple(ignored_places(options).items())
    return Annotations(options.annotate, excludable_passes(), ignored)


def make_training(
    train: TrainingSource | None = None,
    loss: Mapping[str, Any] | str | None = None,
    optimizer: Mapping[str, Any] | None = None,
) -> TrainingSettings | None:
    """How to train, from whatever `compile_model` takes; ``None`` if the model is not trained.

    Raises:
        OptionError: lists every problem.
        UsageError: both ``train`` and one of the others are given, or only one of them.
    """
    if train is None and loss is None and optimizer is None:
        return None
    if train is not None:
        if loss is not None or optimizer is not None:
            raise UsageError("train=... says everything: loss and optimizer cannot be given too")
        if isinstance(train, TrainingSettings):
            return train
        return parse_training(train) if isinstance(train, Mapping) else read_training_file(train)
    tables = {
        "loss": {"type": "identity", "input": loss} if isinstance(loss, str) else loss,
        "optimizer": optimizer,
    }
    return parse_training({key: value for key, value in tables.items() if value is not None})


def _has_dimensions(name: str, type_: TensorType) -> bool:
    """Scalars stay constants: exporters keep numbers of formulas in them."""
    del name
    return type_.rank > 0


def bind_training(
    bindings: Bindings,
    loaded: LoadedModel,
    training: TrainingSettings | None,
    options: Options,
) -> Bindings:
    """``bindings`` with the weights that become variables, and the tensors that training needs.

    Raises:
        OptionError: options are given that only training uses.
    """
    if training is None:
        _refuse_training_options(options)
        if options.constant_weights:
            return bindings
        return replace(bindings, training=TrainingBindings(_has_dimensions, trains=False))
    plain, _ = training_anchors(bindings.anchors)
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
            recompute=RecomputeWishes(
                options.auto_recomputation, options.recompute, options.checkpoints
            ),
        ),
    )


def _refuse_training_options(options: Options) -> None:
    if options.accumulation_factor > 1:
        raise OptionError(
            "accumulation_factor is for training: it adds up gradients",
            subject="accumulation_factor",
            hint="compile with --train FILE, or use batches_per_step",
        )
    given = {
        "auto_recomputation": options.auto_recomputation != "none" and not _recomputes(options),
        "checkpoints": options.checkpoints,
        "merge_var_update": options.merge_var_update != "off",
        "recompute": options.recompute,
    }
    useless = [name for name, is_given in given.items() if is_given]
    if useless:
        raise OptionError(
            f"{', '.join(useless)}: for training; this program has no backward pass and no updates",
            subject=useless[0],
            hint="compile with --train FILE",
        )


def _recomputes(options: Options) -> bool:
    """Whether later stages of a pipeline compute once more what earlier ones have computed."""
    return options.enable_pipelining and options.auto_recomputation == "pipeline"


def make_options(
    source: Mapping[str, object] | str | os.PathLike[str] | None = None,
) -> Options:
    """Resolve options from a mapping or a file, and from POPC_* environment variables.

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
    )
