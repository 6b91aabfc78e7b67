"""Walk over the graphs of a model for two sizes of a dimension, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from popc.frontend import LoadedModel, import_model
from popc.ir import Graph, Op, Tensor
from popc.ops import OPS
from popc.padding.cases import PLAIN, Fold, PaddedCase, PaddingError, lanes_of_constant
from popc.padding.lanes import LaneKind, Lanes
from popc.padding.rules import fold_of_results, rule_of
from popc.request import CompileRequest
from popc_runtime.errors import SpokenHint, UsageError

__all__ = ["prove_padding"]

_PROBES: Final = (2, 3)  # sizes that are looked at beside those of the programs
_HINT: Final = "name the input that masks it, and its number there: {}; or compile all sizes"


def prove_padding(
    name: str,
    sizes: Sequence[int],
    request: CompileRequest,
    loaded: LoadedModel,
    places: Mapping[str, int],
    fills: Mapping[str, float],
) -> Mapping[str, int]:
    """Prove it for a dimension of ``request``; the axes of the outputs that have it.

    Args:
        name: The dimension.
        sizes: Those of the programs.
        request: Says all but the size of the dimension.
        loaded: The model.
        places: The axes along which inputs have the dimension.
        fills: The numbers that some of these inputs are filled up with; others repeat what they
            have at the last position.

    Raises:
        UsageError: it is not shown; names the op.
    """
    # A size of 1 is left out: its axes look like those that operands grow along.
    smallest, *others = sorted({*sizes, *_PROBES} - {0, 1})
    before = _graph(name, smallest, request, loaded)
    outputs: Mapping[str, int] = {}
    for size in others:
        after = _graph(name, size, request, loaded)
        outputs = _Walk(name, before, after, (smallest, size)).outputs(places, fills)
    return outputs


def _graph(name: str, size: int, request: CompileRequest, loaded: LoadedModel) -> Graph:
    sized = replace(request, dims={**request.dims, name: size})
    model = import_model(loaded, sized.bindings(loaded))
    if model.updates:
        raise _refused(name, "the model changes its own weights")
    return model.graph


def _refused(name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} cannot be filled up: {why}",
        hint=SpokenHint(
            _HINT.format(f"pad={{{name!r}: {{'MASK': 0}}}}"), _HINT.format(f"--pad {name}:MASK=0")
        ),
    )


class _Walk:
    """Two graphs of one model; see `prove_padding`."""

    def __init__(self, name: str, before: Graph, after: Graph, sizes: tuple[int, int]) -> None:
        self._name = name
        self._before, self._after = before, after
        self._sizes = sizes
        self._partner: dict[Tensor, Tensor] = {}
        self._lanes: dict[Tensor, Lanes] = {}
        self._folds: dict[Tensor, Fold] = {}

    def outputs(self, places: Mapping[str, int], fills: Mapping[str, float]) -> Mapping[str, int]:
        """The axes of the outputs that have the dimension.

        Raises:
            UsageError: see `prove_padding`.
        """
        for small, large in zip(self._before.inputs, self._after.inputs, strict=True):
            lane = fills.get(large.name, LaneKind.ORDINARY)
            self._partner[large] = small
            self._lanes[large] = {places[large.name]: lane} if large.name in places else {}
        if len(self._before) != len(self._after):
            raise _refused(self._name, "the model is another graph for other sizes")
        pairs = zip(self._before.topological(), self._after.topological(), strict=True)
        for mine, other in pairs:
            try:
                self._take(mine, other)
            except PaddingError as problem:
                where = f"{other.op_type} ({other.settings.origin or other.output.name})"
                raise _refused(self._name, f"{where}: {problem}") from None
        axes: dict[str, int] = {}
        for output, tensor in zip(self._after.output_names, self._after.outputs, strict=True):
            lanes = self._known(tensor)
            if len(lanes) > 1:
                raise _refused(self._name, f"output {output!r} has it along two axes")
            if self._fold(tensor) != PLAIN:
                raise _refused(
                    self._name, f"output {output!r} has it in one axis with other dimensions"
                )
            axes |= dict.fromkeys([output], next(iter(lanes))) if lanes else {}
        return axes

    def _take(self, small: Op, large: Op) -> None:
        spec = OPS.get(large.op_type)
        if spec is not None and (spec.random or spec.side_effect):
            raise PaddingError("it does not do the same in every run")
        if small.op_type != large.op_type or len(small.inputs) != len(large.inputs):
            raise PaddingError("it is another op for other sizes")
        for mine, other in zip(small.inputs, large.inputs, strict=True):
            if not self._is_same(mine, other):
                raise PaddingError("it reads numbers that depend on the size")
        self._partner |= dict(zip(large.outputs, small.outputs, strict=True))
        differing = [self._differing(tensor) for tensor in large.outputs]
        case = PaddedCase(large, small, self._known, self._fold, self._sizes)
        fold = PLAIN
        reads = any(self._known(tensor) for tensor in large.inputs if tensor is not None)
        if reads or any(differing):
            found: Sequence[Lanes] = rule_of(large.op_type)(case)
            fold = fold_of_results(case)
        else:
            case.require_same_attributes()
            found = [{} for _ in large.outputs]
        for tensor, axes, lanes in zip(large.outputs, differing, found, strict=True):
            if axes != set(lanes):
                raise PaddingError("it makes other shapes for other sizes")
            self._require_sizes(tensor, axes, fold)
            self._lanes[tensor], self._folds[tensor] = lanes, fold if lanes else PLAIN

    def _differing(self, tensor: Tensor) -> set[int]:
        """The axes along which a result differs.

        Raises:
            PaddingError: it has another number of them.
        """
        small, large = self._partner[tensor].type.shape, tensor.type.shape
        if len(small) != len(large):
            raise PaddingError("it makes other shapes for other sizes")
        return {n for n, size in enumerate(large) if size != small[n]}

    def _require_sizes(self, tensor: Tensor, axes: Collection[int], fold: Fold) -> None:
        """Check that ``axes`` are those of the dimension, in the way that ``fold`` says.

        Raises:
            PaddingError: they are not.
        """
        small, large = self._partner[tensor].type.shape, tensor.type.shape
        wanted = tuple(size * prod(fold) for size in self._sizes)
        if any((small[axis], large[axis]) != wanted for axis in axes):
            raise PaddingError("it puts positions together with others")
        if fold != PLAIN and len(axes) > 1:
            raise PaddingError("it has positions of several samples along two axes")

    def _is_same(self, small: Tensor | None, large: Tensor | None) -> bool:
        """True for operands that agree at the positions that both have."""
        if small is None or large is None:
            return small is large
        if small.data is None or large.data is None:
            return self._partner.get(large) is small
        if large not in self._lanes:
            lanes = lanes_of_constant(small.data, large.data, self._sizes)
            if lanes is None:
                return False
            self._lanes[large] = lanes
        return True

    def _known(self, tensor: Tensor) -> Lanes:
        return self._lanes.get(tensor, {})

    def _fold(self, tensor: Tensor) -> Fold:
        return self._folds.get(tensor, PLAIN)
