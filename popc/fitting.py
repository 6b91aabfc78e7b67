"""Proof that inputs of other sizes may be split, or filled up, without a change of any result.

A dimension may be fitted if the model computes each of its samples by itself, and all in the same
way.  Both are shown on the graph as it was imported: every op is cut, by the rules of batch
serialization, into parts of one sample that read nothing of others, and what remains of the graph
for one sample is the same for all sizes.  It may also be filled up if what is added changes nothing
of the rest, although ops work along it (`popc.padding`).  Anything else is refused, with the op in
the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np

from popc.frontend import LoadedModel, import_model
from popc.ir import Op, Tensor
from popc.ops import OPS
from popc.padding import prove_padding
from popc.request import CompileRequest
from popc.requests import Requests
from popc.transforms.batch_serialization.analysis import part_type, sound_cut
from popc.transforms.batch_serialization.cut import Case, Cut
from popc_runtime.errors import UsageError
from popc_runtime.format import FitMode, FitSpec
from popc_runtime.ground.frozen import frozen

__all__ = ["prove_fits"]

_PROBES: Final = (2, 3)  # sizes that are looked at beside those of the programs


def prove_fits(requests: Requests, loaded: LoadedModel) -> tuple[FitSpec, ...]:
    """The dimensions of ``requests.split`` and ``pad``, proven.

    Raises:
        UsageError: there is no such dimension, or samples along it are not computed alone; names
            the op.
    """
    names = dict.fromkeys((*requests.split, *requests.pad))
    for request in requests.programs[: 1 if names else 0]:
        _refuse_steps(request)
    return tuple(_prove(name, requests, loaded) for name in names)


def _prove(name: str, requests: Requests, loaded: LoadedModel) -> FitSpec:
    places = loaded.places_of(name)
    if not places:
        raise UsageError(
            f"{name}: no input has a dimension of this name",
            hint="split and pad name symbolic dimensions of the model",
        )
    fills = requests.pad.get(name, {})
    _refuse_fills(name, fills, places, split=name in requests.split)
    if fills:
        return _filled(name, requests, loaded, places)
    splits, pads = name in requests.split, name in requests.pad
    try:
        outputs = _proven(name, requests, loaded, places)
    except UsageError as mixes:
        if splits:
            raise
        try:
            return _filled(name, requests, loaded, places)
        except UsageError as counts:
            raise UsageError(
                mixes.message, details=(f"or by a mask: {counts.message}",), hint=counts.hint
            ) from None
    modes = [FitMode.SPLIT] * splits + [FitMode.PAD] * pads
    return FitSpec(name, tuple(modes), places, outputs)


def _refuse_fills(
    name: str, fills: Mapping[str, float], places: Mapping[str, int], *, split: bool
) -> None:
    unknown = [input_ for input_ in fills if input_ not in places]
    if unknown:
        raise UsageError(
            f"pad of {name}: input {unknown[0]!r} does not have this dimension",
            hint=f"{', '.join(places)} have it",
        )
    if fills and split:
        raise UsageError(f"{name} is either split or filled up with numbers, not both")


def _proven(
    name: str, requests: Requests, loaded: LoadedModel, places: Mapping[str, int]
) -> Mapping[str, int]:
    """Prove that samples do not mix; the axes of the outputs."""
    outputs: Mapping[str, int] = {}
    for request in _by_others(name, requests):
        outputs = _prove_one(name, request, requests, loaded, places)
    return outputs


def _filled(
    name: str, requests: Requests, loaded: LoadedModel, places: Mapping[str, int]
) -> FitSpec:
    """Prove that what is filled up is left out."""
    outputs: Mapping[str, int] = {}
    sizes, fills = _sizes_of(name, requests), requests.pad[name]
    for request in _by_others(name, requests):
        outputs = prove_padding(name, sizes, request, loaded, places, fills)
    texts = {input_: f"{number:.17g}" for input_, number in fills.items()}
    return FitSpec(name, (FitMode.FILL,), places, outputs, texts)


def _by_others(name: str, requests: Requests) -> list[CompileRequest]:
    """A request for each choice of the other dimensions."""
    return list({_other_dims(request, name): request for request in requests.programs}.values())


def _sizes_of(name: str, requests: Requests) -> list[int]:
    wanted = [program.dims[name] for program in requests.programs if name in program.dims]
    if len(wanted) != len(requests.programs):
        raise UsageError(f"{name}: its sizes must be given by dims, not by shapes")
    return wanted


def _other_dims(request: CompileRequest, name: str) -> tuple[tuple[str, int], ...]:
    return tuple((other, size) for other, size in request.dims.items() if other != name)


def _prove_one(
    name: str,
    request: CompileRequest,
    requests: Requests,
    loaded: LoadedModel,
    places: Mapping[str, int],
) -> Mapping[str, int]:
    """Prove it for the other dimensions of ``request``; the axes of the outputs."""
    wanted = _sizes_of(name, requests)
    first: _Alone | None = None
    for size in sorted({*wanted, *_PROBES}):
        alone = _alone(name, size, request, loaded, places)
        if first is None:
            first = alone
        difference = first.difference(alone)
        if difference:
            raise UsageError(
                f"{name}: a sample is not computed the same way for all sizes: {difference} of "
                f"size {size} is another than of size {first.size}",
                hint="leave out split and pad, and compile all sizes that occur",
            )
        if size > 1:
            outputs = alone.outputs
    assert first is not None
    return outputs


# An op for one sample: what it is, what it reads, and the types of its results.
_Row: TypeAlias = tuple[object, ...]


@frozen
class _Alone:
    """The graph of one sample.

    Attributes:
        size: The size of the dimension in the graph that it was taken from.
        rows: Its ops, in their order; names with them, for messages.
        outputs: The axes along which outputs have the dimension.
    """

    size: int
    rows: tuple[tuple[str, _Row], ...]
    outputs: Mapping[str, int]

    def difference(self, other: _Alone) -> str:
        """The first op that differs; "" if there is none."""
        for (name, mine), (_, others) in zip(self.rows, other.rows, strict=False):
            if mine != others:
                return name
        return "" if len(self.rows) == len(other.rows) else "the number of ops"


def _alone(
    name: str, size: int, request: CompileRequest, loaded: LoadedModel, places: Mapping[str, int]
) -> _Alone:
    sized = replace(request, dims={**request.dims, name: size})
    model = import_model(loaded, sized.bindings(loaded))
    if model.updates:
        raise _mixes(name, "the model changes its own weights")
    graph = model.graph
    # A graph of one sample is what remains of the others: there is nothing to cut.
    batch = [tensor for tensor in graph.inputs if tensor.name in places and size > 1]
    axes = {tensor: places[tensor.name] for tensor in batch}
    numbers: dict[Tensor, int] = {tensor: -1 - n for n, tensor in enumerate(graph.inputs)}
    rows: list[tuple[str, _Row]] = []
    for op in graph.topological():
        cut = _cut(name, op, axes, size)
        where = op.settings.origin or op.op_type
        rows.append((f"{op.op_type} ({where})", _row(op, cut, axes, numbers, size)))
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    missing = [output for output, tensor in outputs.items() if tensor not in axes]
    if missing and size > 1:
        raise _mixes(name, f"output {missing[0]!r} does not have it")
    found = {output: axes[tensor] for output, tensor in outputs.items() if tensor in axes}
    return _Alone(size, tuple(rows), found)


def _cut(name: str, op: Op, axes: dict[Tensor, int], size: int) -> Cut | None:
    """The cut of an op into samples; ``None`` for one that has nothing to do with them.

    Raises:
        UsageError: it mixes samples, or nothing is known about that.
    """
    where = f"{op.op_type} ({op.settings.origin or op.output.name})"
    spec = OPS.get(op.op_type)
    if spec is not None and (spec.random or spec.side_effect):
        raise _mixes(name, f"{where} does not do the same in every run")
    own = tuple(None if tensor is None else axes.get(tensor) for tensor in op.inputs)
    if all(axis is None for axis in own):
        return None
    cut = sound_cut(Case(op, own, size))
    if isinstance(cut, str):
        raise _mixes(name, f"{where}: {cut}")
    for tensor, wanted, axis in zip(op.inputs, cut.operands, own, strict=True):
        if tensor is None or wanted == axis:
            continue
        if axis is not None or wanted is None or not _repeats(tensor, wanted):
            raise _mixes(name, f"{where} reads {tensor.name!r} in another way than by sample")
    places = [place for place in cut.results if isinstance(place, int)]
    if len(places) != len(op.outputs) or cut.divided:
        raise _mixes(name, f"{where} puts samples together")
    axes.update(zip(op.outputs, places, strict=True))
    return cut


def _repeats(tensor: Tensor, axis: int) -> bool:
    """True for a constant that is the same for every sample."""
    if tensor.data is None:
        return False
    rows = np.moveaxis(tensor.data, axis, 0)
    return all(row.tobytes() == rows[0].tobytes() for row in rows[1:])


def _row(
    op: Op, cut: Cut | None, axes: Mapping[Tensor, int], numbers: dict[Tensor, int], size: int
) -> _Row:
    """The key of an op for one sample; numbers its results."""
    read: list[object] = []
    for index, tensor in enumerate(op.inputs):
        if tensor is None:
            read.append(None)
        elif tensor.data is not None:
            axis = None if cut is None else cut.operands[index]
            read.append(_content(tensor, axis))
        else:
            read.append(numbers[tensor])
    for tensor in op.outputs:
        numbers[tensor] = len(numbers)
    attributes = {**op.attributes, **(cut.attributes if cut is not None else {})}
    types = tuple(str(part_type(tensor.type, axes.get(tensor), size)) for tensor in op.outputs)
    return op.op_type, tuple(read), tuple(sorted(attributes.items(), key=_first)), types


def _first(item: tuple[str, object]) -> str:
    return item[0]


def _content(tensor: Tensor, axis: int | None) -> tuple[str, tuple[int, ...], bytes]:
    """The elements of a constant, of the one sample that all are like."""
    assert tensor.data is not None
    data = tensor.data if axis is None else tensor.data.take([0], axis)
    digest = blake2b(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data, digest_size=16)
    return tensor.type.dtype.value, data.shape, digest.digest()


def _mixes(name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} can be neither split nor filled up: {why}",
        hint="leave out split and pad, and compile all sizes that occur",
    )


def _refuse_steps(request: CompileRequest) -> None:
    options = request.options
    if request.trains:
        raise UsageError("a training step cannot be split or filled up: it learns from the batch")
    for option in ("batches_per_step", "replicated_graph_count"):
        if getattr(options, option) > 1:
            raise UsageError(f"split and pad are for single batches: {option} is more than 1")
