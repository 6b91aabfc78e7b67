"""The Python interface of the compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from popc.archive import Archive, build_archive
from popc.compiler import OnArtefact, run_stages
from popc.frontend import Bindings, ModelSource, load_model
from popc.options import Options, resolve_options
from popc.progress import OnProgress
from popc.transforms import optional_passes

__all__ = ["compile_model", "make_bindings", "make_options"]


def compile_model(
    model: ModelSource,
    *,
    options: Options | Mapping[str, object] | str | os.PathLike[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    on_artefact: OnArtefact | None = None,
) -> Archive:
    """Compile an ONNX model.  Exported as ``popc.compile``.

    Args:
        model: Path of a model, its bytes, or the message itself.
        options: Options by name, the path of a TOML or JSON file, or `make_options`' result.
        shapes: Shapes of inputs by name; needed where the model leaves dimensions open.
        dims: Values of symbolic dimensions by their names in the model.
        bind: Inputs that become constants, by name; a list for a sequence.
        outputs: Names of the tensors to return; those of the model if not given.
        on_progress: Told when a stage begins and ends; may raise to cancel.
        on_artefact: Told the text form of what each stage made.

    Raises:
        ModelError: the model is not valid, or uses what popc cannot compile.
        OptionError: options are unknown, ill-typed or in conflict.
        UsageError: ``shapes``, ``dims``, ``bind`` or ``outputs`` do not fit the model.
    """
    resolved = options if isinstance(options, Options) else make_options(options)
    loaded = load_model(model)
    bindings = make_bindings(resolved, shapes, dims, bind, outputs)
    done = run_stages(loaded, bindings, resolved, on_progress=on_progress, on_artefact=on_artefact)
    assert done.model is not None, "the last stage has run"
    assert done.plan is not None, "the last stage has run"
    assert done.image is not None, "the last stage has run"
    return build_archive(loaded, done.model, done.plan, done.image, resolved)


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
    )


def make_options(
    source: Mapping[str, object] | str | os.PathLike[str] | None = None,
) -> Options:
    """Resolve options from a mapping or a file, and from POPC_* environment variables.

    Raises:
        OptionError: lists every problem.
    """
    values = source if isinstance(source, Mapping) else None
    file = None if source is None or isinstance(source, Mapping) else source
    return resolve_options(values=values, file=file, env=os.environ, pass_names=optional_passes())
