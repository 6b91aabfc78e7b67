"""Changes of whole models: other element types, constants for weights, fewer inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from popc.ir import free_name
from popc.popart.calls import native
from popc.popart.errors import popart_exception
from popc.popart.external_data import save_externally
from popc.popart.loading import check_model, load_model

__all__ = ["GraphTransformer"]

_T: Final = onnx.TensorProto
_A: Final = onnx.AttributeProto
_Array = np.ndarray[Any, Any]
_FIXED_POINT: Final = (
    *(_T.BOOL, _T.INT8, _T.INT16, _T.INT32, _T.INT64),
    *(_T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64),
)
_BATCH_NORM_OUTPUTS: Final = 5  # of BatchNormalization-9 in training: y and four statistics


class GraphTransformer:
    """A model that is changed in place.

    Args:
        modelProtoOrFilename: The model: its bytes, or the name of a file.

    Raises:
        RuntimeError: ONNX's checker refuses the model.
        popart_exception: there is no such model.
    """

    __slots__ = ("_model",)

    def __init__(self, modelProtoOrFilename: bytes | str) -> None:
        if not isinstance(modelProtoOrFilename, bytes | str):
            raise TypeError(
                "__init__(): incompatible constructor arguments. The following argument types are "
                "supported:\n    1. (modelProtoOrFilename: Union[str, bytes])"
            )
        self._model, _ = load_model(modelProtoOrFilename)
        check_model(self._model)

    def getModelProto(self) -> bytes:
        """The model as ONNX's message."""
        serialised: bytes = self._model.SerializeToString()
        return serialised

    # -- element types ---------------------------------------------------------------------------

    def convertFloatsToHalfs(self) -> None:
        """Make FLOAT16 of FLOAT."""
        self._convert(_T.FLOAT, _T.FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """Make FLOAT of DOUBLE."""
        self._convert(_T.DOUBLE, _T.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Make FLOAT16 of DOUBLE."""
        self._convert(_T.DOUBLE, _T.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Make FLOAT of BFLOAT16."""
        self._convert(_T.BFLOAT16, _T.FLOAT)

    def convertUINT8ToINT32(self) -> None:
        """Make INT32 of UINT8."""
        self._convert(_T.UINT8, _T.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Make INT32 of UINT16."""
        self._convert(_T.UINT16, _T.INT32)

    def convertINT8ToINT32(self) -> None:
        """Make INT32 of INT8."""
        self._convert(_T.INT8, _T.INT32)

    def convertINT16ToINT32(self) -> None:
        """Make INT32 of INT16."""
        self._convert(_T.INT16, _T.INT32)

    @native
    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Make INT32 of INT64.

        Raises:
            popart_exception: a number is too large, and not to be clipped.
        """
        self._convert(_T.INT64, _T.INT32, _clipped if clip else _narrowed)

    def _convert(
        self, old: int, new: int, change: Callable[[_Array], _Array] | None = None
    ) -> None:
        """Change every tensor of an element type: weights, attributes, inputs, outputs, values."""
        graph = self._model.graph
        for tensor in (*_attribute_tensors(graph), *graph.initializer):
            if tensor.data_type == old:
                _change(tensor, new, change)
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == old:
                info.type.tensor_type.elem_type = new

    # -- weights and inputs ----------------------------------------------------------------------

    @native
    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        """Make Constant nodes, in front of all others, of weights.

        Raises:
            popart_exception: a name is no weight.
            RuntimeError: ONNX's checker refuses the result.
        """
        graph = self._model.graph
        known = {tensor.name: tensor for tensor in graph.initializer}
        for name in ids:
            if name not in known:
                raise popart_exception(f"TensorId {name} not in the model initalizers")
        constants = [
            onnx.helper.make_node("Constant", [], [name], name=name, value=known[name])
            for name in ids
        ]
        _keep(graph.initializer, lambda tensor: tensor.name not in ids)
        _keep(graph.input, lambda info: info.name not in ids)
        nodes = [*constants, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
        check_model(self._model)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Make Constant nodes of all weights that are whole numbers or truth values."""
        weights = self._model.graph.initializer
        self.convertInitializersToConstants(
            [tensor.name for tensor in weights if tensor.data_type in _FIXED_POINT]
        )

    def prepareNodesForTraining(self) -> None:
        """Give every BatchNormalization the outputs that it has in training."""
        graph = self._model.graph
        taken = {name for node in graph.node for name in (*node.input, *node.output)}
        for node in graph.node:
            while node.op_type == "BatchNormalization" and len(node.output) < _BATCH_NORM_OUTPUTS:
                name = free_name(f"{node.output[0]}_{len(node.output)}", taken)
                taken.add(name)
                node.output.append(name)

    def removeUnusedInputs(self) -> None:
        """Take inputs and weights away that no node of the main graph reads."""
        graph = self._model.graph
        read = {name for node in graph.node for name in node.input}
        _keep(graph.input, lambda info: info.name in read)
        _keep(graph.initializer, lambda tensor: tensor.name in read)

    @native
    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Move the data of weights to a file.

        Raises:
            popart_exception: the file cannot be written, or a name is no weight with data.
        """
        known = {tensor.name: tensor for tensor in self._model.graph.initializer}
        save_externally(known.get, ids, filename)


def _keep(items: Any, wanted: Callable[[Any], bool]) -> None:
    """Keep those of a repeated field that are wanted, in order."""
    kept = [item for item in items if wanted(item)]
    del items[:]
    items.extend(kept)


def _attribute_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors in attributes of nodes.

    Raises:
        popart_exception: a node has a subgraph.
    """
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in (_A.GRAPH, _A.GRAPHS):
                raise popart_exception(
                    "Attributes of type GRAPH and GRAPHS cannot be converted: "
                    f"{attribute.name} of {node.name or node.op_type}"
                )
            if attribute.type == _A.TENSOR:
                yield attribute.t
            yield from attribute.tensors


def _change(tensor: onnx.TensorProto, new: int, change: Callable[[_Array], _Array] | None) -> None:
    array = numpy_helper.to_array(tensor)
    if change is not None:
        array = change(array)
    with np.errstate(over="ignore"):
        converted = array.astype(onnx.helper.tensor_dtype_to_np_dtype(new))
    tensor.CopyFrom(numpy_helper.from_array(converted, tensor.name))


def _clipped(array: _Array) -> _Array:
    limits = np.iinfo(np.int32)
    return np.clip(array, limits.min, limits.max)


def _narrowed(array: _Array) -> _Array:
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise popart_exception(
            "Can't convert INT64 to INT32: the number is too large, "
            f"{array.max() if array.max() > limits.max else array.min()}"
        )
    return array
