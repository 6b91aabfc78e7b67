"""Filters that onnxruntime has stored in blocks of channels, put back in order.

At its highest level of optimisation onnxruntime writes a model for the processor that it runs on:
with operators of ``com.microsoft.nchwc``, between which channels lie in blocks, and with filters
in that order: [M/b, C/b, kH, kW, b of C, b of M], or [M/b, C, kH, kW, b of M] where an operand has
fewer channels than a block, or each channel a filter of its own.  Shapes are written as if there
were no blocks, so that the file tells their size only where numbers of channels leave no choice
(onnxruntime, core/optimizer/nchwc_transformer.cc; mlas, reorder.cpp).  Where they leave one,
onnxruntime takes the size of the processor that it runs on, and so does popc, with a note.

popc plans layouts itself: with filters in order, those operators are the ordinary ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.load import LoadedModel
from popc.frontend.tensors import decode_tensor
from popc.frontend.walk import all_nodes, graphs_inside, node_name, number_of
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.native import variants

__all__ = ["blocks_of_this_processor", "has_blocks", "with_filters_in_order"]

_DOMAIN: Final = "com.microsoft.nchwc"
_OPTION: Final = "nchwc_block_size"
_SIZES: Final = (8, 16)
_OF_PROCESSORS: Final = {"x86-64-v4": 16, "aarch64": 16, "x86-64-v3": 8}  # mlas, platform.cpp
_SPLIT: Final = 5  # dimensions of a tensor whose blocks have been given a dimension of their own


@frozen
class _Filters:
    """The filters of a convolution; ``reads_blocks``: its operand's channels lie in blocks."""

    node: onnx.NodeProto
    tensor: onnx.TensorProto
    reads_blocks: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """[M, C, kH, kW]: filters, those that fill the last block included, channels, window."""
        return tuple(self.tensor.dims)

    @property
    def groups(self) -> int:
        """The number of groups of channels."""
        said = number_of(self.node, "group")
        return 1 if said is None else said

    def fits(self, size: int) -> bool:
        """True if onnxruntime would have stored them so in blocks of ``size``."""
        filters, channels = self.shape[:2]
        if filters % size:
            return False
        if self.groups == 1:
            return (channels >= size) == self.reads_blocks and not (
                self.reads_blocks and channels % size
            )
        return channels == 1 or not (channels % size or filters // self.groups % size)

    def in_order(self, size: int, base_dir: str) -> Array:
        """Their elements, [M, C, kH, kW]."""
        filters, channels, *window = self.shape
        array = decode_tensor(self.tensor, base_dir)[1]
        if channels < size:
            blocks = array.reshape(filters // size, channels, *window, size)
            return blocks.transpose(0, 4, 1, 2, 3).reshape(self.shape)
        blocks = array.reshape(filters // size, channels // size, *window, size, size)
        return blocks.transpose(0, 5, 1, 4, 2, 3).reshape(self.shape)


class _Reader:
    """The facts that a graph tells about its blocks."""

    def __init__(self, graph: onnx.GraphProto, base_dir: str) -> None:
        self.base_dir = base_dir
        self.filters: list[_Filters] = []
        self.entries: list[onnx.NodeProto] = []  # where tensors are put into blocks
        self.reshapes: list[onnx.NodeProto] = []
        self.sizes: set[int] = set()  # that are written down
        self.channels: list[tuple[_Filters, int]] = []  # how many there are without filling
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._blocked: dict[str, _Filters | None] = {}  # tensors, and the filters they come from
        for node in graph.node:
            self._read(node)

    def _read(self, node: onnx.NodeProto) -> None:
        source = next((name for name in node.input if name in self._blocked), None)
        if node.domain == _DOMAIN:
            self._read_own(node, source)
        elif source is not None:
            if node.op_type == "Reshape":
                self._read_reshape(node)
            keeps = node.op_type != "Concat"
            self._blocked[node.output[0]] = self._blocked[source] if keeps else None

    def _read_own(self, node: onnx.NodeProto, source: str | None) -> None:
        filters = self._blocked.get(source) if source else None
        if node.op_type == "Conv":
            filters = self._filters_of(node)
            self.filters.append(filters)
        if node.op_type == "ReorderInput":
            self.entries.append(node)
        if node.op_type != "ReorderOutput":
            self._blocked[node.output[0]] = filters
        elif filters is not None:
            said = number_of(node, "channels")
            self.channels.append((filters, filters.shape[0] if said is None else said))

    def _filters_of(self, node: onnx.NodeProto) -> _Filters:
        tensor = self._weights.get(node.input[1])
        if tensor is None or len(tensor.dims) != 4:
            raise ModelError(
                f"the filters of {_DOMAIN}.Conv are no constant of four dimensions",
                subject=node_name(node),
            )
        return _Filters(node, tensor, node.input[0] in self._blocked)

    def _read_reshape(self, node: onnx.NodeProto) -> None:
        """Blocks get a dimension of their own, or lose it: for sums of which sizes are open."""
        tensor = self._weights.get(node.input[1])
        if tensor is not None:
            shape = decode_tensor(tensor, self.base_dir)[1]
            self.sizes.update([int(shape[-1])] if len(shape) == _SPLIT else [])
            self.reshapes.append(node)

    def fits(self, size: int) -> bool:
        """True if nothing in the graph speaks against blocks of ``size``."""
        return (
            self.sizes <= {size}
            and all(filters.fits(size) for filters in self.filters)
            and all(self._is_filled(filters, channels, size) for filters, channels in self.channels)
        )

    def _is_filled(self, filters: _Filters, channels: int, size: int) -> bool:
        """True if the last block is filled up by less than a block: with zeros, or factors of 1.

        A product by a factor for each channel has become a convolution, too.
        """
        if filters.shape[0] != -(-channels // size) * size:
            return False
        rest = filters.in_order(size, self.base_dir)[channels:]
        return not rest.any() or (prod(filters.shape[1:]) == 1 and bool((rest == 1).all()))


def has_blocks(model: LoadedModel) -> bool:
    """True if channels of some tensors lie in blocks."""
    nodes = all_nodes(model.proto.graph.node) if _DOMAIN in model.opsets else ()
    return any(node.domain == _DOMAIN for node in nodes)


def blocks_of_this_processor() -> int:
    """The channels in a block where onnxruntime runs on this processor; 0: popc does not know."""
    return next((_OF_PROCESSORS[name] for name in variants() if name in _OF_PROCESSORS), 0)


def with_filters_in_order(model: LoadedModel, size: int) -> LoadedModel:
    """``model``, or a copy in which the filters of ``com.microsoft.nchwc`` are in order.

    ``size`` is that of blocks; 0: what the file tells, or that of this processor where it does not.

    Raises:
        OptionError: nobody tells it, or nothing in the file is in blocks of ``size``.
        ModelError: the filters are in no blocks that onnxruntime makes.
    """
    if not has_blocks(model):
        if size:
            raise OptionError(
                f"the model has no operators of {_DOMAIN}", subject=_OPTION, hint="leave it out"
            )
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model.proto)
    graphs = [copy.graph, *graphs_inside(copy.graph.node)]
    readers = [_Reader(graph, model.base_dir) for graph in graphs]
    sizes = _possible_sizes(readers, size)
    chosen, notes = sizes[0], model.notes
    if len(sizes) > 1:
        chosen = _size_here(sizes)
        note = (
            f"nothing in the file tells how large the blocks of {_DOMAIN} are: they are read as "
            f"blocks of {chosen} channels, as onnxruntime does on this processor; if the file was "
            f"saved on another kind, set {_OPTION}"
        )
        notes += (note,)
    for reader in readers:
        _put_in_order(reader, chosen)
    return replace(model, proto=copy, notes=notes)


def _possible_sizes(readers: Sequence[_Reader], given: int) -> list[int]:
    """The sizes that mean different models; at least one."""
    sizes = [size for size in _SIZES if all(reader.fits(size) for reader in readers)]
    if given and given not in sizes:
        raise OptionError(
            f"the model's filters are not stored in blocks of {given}",
            subject=_OPTION,
            hint=f"they are in blocks of {sizes[0]}" if sizes else "",
        )
    if not sizes:
        raise ModelError(
            f"the filters of {_DOMAIN} are in blocks neither of {_SIZES[0]} nor of {_SIZES[1]}",
            hint="save the model with onnxruntime at the level ORT_ENABLE_EXTENDED or below",
        )
    if given:
        return [given]
    return sizes if any(map(_depend_on_size, readers)) else sizes[:1]


def _size_here(sizes: Sequence[int]) -> int:
    if (size := blocks_of_this_processor()) in sizes:
        return size
    raise OptionError(
        "onnxruntime has optimised this model for one kind of processor, and nothing in the file "
        f"tells whether its filters are in blocks of {' or '.join(map(str, sizes))} channels",
        subject=_OPTION,
        hint=f"set {_OPTION}=16 if it was saved on a processor with AVX-512 or on an Arm one, "
        f"{_OPTION}=8 if on another; or save it with ORT_ENABLE_EXTENDED",
    )


def _depend_on_size(reader: _Reader) -> bool:
    return any(prod(filters.shape[1:]) > 1 for filters in reader.filters)


def _put_in_order(reader: _Reader, size: int) -> None:
    """Reorder filters, each once; blocks have no dimension of their own any more.

    Where tensors are put into blocks, attribute ``block_size`` says what their channels are filled
    up to a multiple of.
    """
    from onnx import helper, numpy_helper

    found = {filters.tensor.name: filters for filters in reader.filters}
    for name, filters in found.items():
        ordered = numpy_helper.from_array(filters.in_order(size, reader.base_dir), name)
        filters.tensor.CopyFrom(ordered)
    for node in reader.entries:
        node.attribute.append(helper.make_attribute("block_size", size))
    for node in reader.reshapes:
        same = helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)
        node.CopyFrom(same)
