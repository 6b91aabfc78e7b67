"""Several compilations of one model for one archive: a program for each set of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import isfinite
from typing import Any, BinaryIO, Final, TypedDict, Unpack

from popc.frontend import ModelSource
from popc.request import CompileRequest, OptionsSource, TrainingSource
from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen, replace

__all__ = ["Requests", "SeveralKeywords", "several_requests"]

_MOST: Final = 256  # programs


class SeveralKeywords(TypedDict, total=False):
    """`CompileKeywords` for several shapes.

    Attributes:
        shapes: One mapping, or a list of them, one for each program.
        dims: A size or several, by the name of the dimension; all combinations are compiled.
        split: Dimensions along which inputs of other sizes are run in parts.
        pad: Dimensions along which inputs of other sizes are filled up to the next size; as a
            mapping, with the numbers that masks among the inputs are filled up with, as in
            ``{"length": {"attention_mask": 0}}``.
        evaluate: Whether a model that is trained gets a program that evaluates it as well.
        options, bind, outputs, train, loss, optimizer, meta: The same for all programs.
    """

    options: OptionsSource | None
    shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] | None
    dims: Mapping[str, int | Iterable[int]] | None
    bind: Mapping[str, Any] | None
    outputs: Sequence[str]
    train: TrainingSource | None
    loss: Mapping[str, Any] | str | None
    optimizer: Mapping[str, Any] | None
    meta: Mapping[str, str] | None
    split: Sequence[str]
    pad: Sequence[str] | Mapping[str, Mapping[str, float]]
    evaluate: bool


@frozen
class Requests:
    """Requests that differ in shapes and dimensions alone.

    Attributes:
        programs: One for each program; the first is ``main``.
        split, pad: Dimensions in which inputs may differ from all programs; of ``pad``, with the
            numbers that inputs are filled up with.
        evaluate: Whether each program that trains gets one that evaluates the same weights.
    """

    programs: tuple[CompileRequest, ...]
    split: tuple[str, ...] = ()
    pad: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    evaluate: bool = False

    def of_model(self, model: ModelSource) -> Requests:
        """The same requests for a model that has been loaded."""
        programs = tuple(replace(program, model=model) for program in self.programs)
        return replace(self, programs=programs)

    def with_outputs(self, outputs: tuple[str, ...]) -> Requests:
        """The same with other outputs."""
        programs = tuple(replace(program, outputs=outputs) for program in self.programs)
        return replace(self, programs=programs)

    def with_onnx_folder(self, folder: str) -> Requests:
        """The same, with ``folder`` for converted models if the options name none."""
        options = self.programs[0].options
        if options.onnx_folder:
            return self
        options = replace(options, onnx_folder=folder)
        programs = tuple(program.with_options(options) for program in self.programs)
        return replace(self, programs=programs)

    def with_notes(self, meta: Mapping[str, str]) -> Requests:
        """The same with notes for the archive."""
        programs = tuple(replace(program, meta=meta) for program in self.programs)
        return replace(self, programs=programs)


def several_requests(
    model: ModelSource | BinaryIO, **keywords: Unpack[SeveralKeywords]
) -> Requests:
    """The requests for all combinations of shapes and dimensions, in their order.

    Raises:
        OptionError, UsageError, TypeError: see `CompileRequest.of`; or these are too many.
    """
    single: dict[str, Any] = dict(keywords)
    split, pad = _names("split", single.pop("split", ())), _pads(single.pop("pad", ()))
    evaluate = single.pop("evaluate", False)
    shapes = single.pop("shapes", None)
    alternatives = shapes if isinstance(shapes, (list, tuple)) and shapes else [shapes]
    dims = single.pop("dims", None)
    combinations = list(product(alternatives, _combinations(dims)))
    if len(combinations) > _MOST:
        raise UsageError(
            f"{len(combinations):,} combinations of shapes and dimensions are too many for one "
            f"archive, which holds up to {_MOST}",
            hint="fewer sizes, with split= or pad= for those in between",
        )
    first_shapes, first_dims = combinations[0]
    first = CompileRequest.of(model, shapes=first_shapes, dims=first_dims, **single)
    others = [
        CompileRequest.of(first.model, shapes=other_shapes, dims=other_dims, options=first.options)
        for other_shapes, other_dims in combinations[1:]
    ]
    programs = [replace(first, shapes=each.shapes, dims=each.dims) for each in (first, *others)]
    if evaluate and not first.trains:
        raise UsageError(
            "evaluate: the model is not trained, so its program evaluates it already",
            hint="give train, or loss and optimizer",
        )
    return Requests(tuple(programs), split, pad, bool(evaluate))


def _combinations(dims: Any) -> list[Any]:
    """All combinations of the sizes of dimensions; what is wrong with them is for others to say."""
    if not isinstance(dims, Mapping):
        return [dims]
    sizes = [_sizes(size) for size in dims.values()]
    for name, each in zip(dims, sizes, strict=True):
        if not each:
            raise UsageError(f"dims: there is no size for {name!r}")
    return [dict(zip(dims, chosen, strict=True)) for chosen in product(*sizes)]


def _sizes(size: Any) -> list[Any]:
    several = isinstance(size, Iterable) and not isinstance(size, (str, bytes))
    return list(dict.fromkeys(size)) if several else [size]


def _pads(value: Any) -> dict[str, dict[str, float]]:
    """Dimensions with the numbers that inputs are filled up with; a list of names has none."""
    if not isinstance(value, Mapping):
        return {name: {} for name in _names("pad", value)}
    found: dict[str, dict[str, float]] = {}
    for name, fills in value.items():
        given = {} if fills is None else fills
        if not isinstance(given, Mapping) or not all(map(_is_number, given.values())):
            raise UsageError(
                f"pad of {name!r} is {fills!r:.80}",
                hint='the numbers that masks are filled up with: {"length": {"mask": 0}}',
            )
        found[name] = {input_: float(number) for input_, number in given.items()}
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{argument} is {value!r:.80}", hint='names are given as in ["batch"]')
    return tuple(dict.fromkeys(value))
