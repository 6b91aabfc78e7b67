"""PopART's native builder: a model, input by input and op by op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from popc.frontend import InferredType
from popc.popart.builder_inputs import InputMethods
from popc.popart.builder_nodes import NodeMethods
from popc.popart.builder_scopes import ScopeMethods
from popc.popart.calls import call_form, native
from popc.popart.debug import LAYER, DebugContext, DebugInfo
from popc.popart.dtypes import data_type_of_onnx, element_type
from popc.popart.enums import RecomputeType
from popc.popart.errors import popart_exception
from popc.popart.external_data import save_externally
from popc.popart.graph_model import GraphModel
from popc.popart.loading import check_model, load_model
from popc.popart.logger import log
from popc.popart.node_attributes import write
from popc.popart.scopes import ATTRIBUTES, Scopes

__all__ = ["DEFAULT_ONNX_OPSET", "_BuilderCore"]

DEFAULT_ONNX_OPSET: Final = 10  # PopART's
_UNNAMED: Final = count()
_OLDEST_OPSET, _NEWEST_OPSET = 6, 11  # of ai.onnx that PopART's Builder has classes for
_OP_VERSION: Final = "__op_version"
_DEBUG_ID: Final = "__debug_info_id"
# Operators whose nodes PopART writes without the id of their debug information.
_WITHOUT_ID: Final = ("TensorRemap",)


class _BuilderCore(InputMethods, NodeMethods, ScopeMethods):
    """A model while it is being built; of a subgraph, with the builder around it as ``parent``."""

    __slots__ = ("_graph", "_scopes")

    def __init__(
        self, modelProtoOrFilename: bytes | str | None = None, parent: _BuilderCore | None = None
    ) -> None:
        self._scopes = Scopes()
        if modelProtoOrFilename is None:
            self._graph = GraphModel(None if parent is None else parent._graph)
            return
        proto, folder = load_model(modelProtoOrFilename)
        check_model(proto)
        self._graph = GraphModel(None, proto, folder)
        _require_opsets(self._graph.opsets)

    def _createSubgraphBuilder(self) -> _BuilderCore:
        return _BuilderCore(parent=self)

    # -- ops -------------------------------------------------------------------------------------

    def new_results(self, op_type: str, count: int) -> list[str]:
        """New names for the results of an operator."""
        bases = (f"{op_type}:{index}" for index in range(count))
        return [self._graph.new_name(self._scopes.full_name(base)) for base in bases]

    def require_tensor(self, name: str) -> None:
        """Check that a tensor exists.

        Raises:
            popart_exception: it does not.
        """
        if not self._graph.has_tensor(name):
            valid = ", ".join(f"'{tensor}'" for tensor in self._graph.tensors())
            what = f"valid tensors are {valid}" if valid else "there are no valid tensors yet"
            raise popart_exception(f"Unknown tensor '{name}' ({what}).")

    def adopt(self, subgraphs: Iterable[GraphModel]) -> None:
        """Take over the opsets of subgraphs that a node is going to hold."""
        for subgraph in subgraphs:
            self._graph.adopt(subgraph)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; ``None`` if it is not known."""
        type_ = self._graph.type_of(name)
        return None if type_ is None else type_.shape

    def add_op(
        self,
        operator: tuple[str, str, int],
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
        debug: DebugContext,
        method: str,
    ) -> None:
        """Add a node of an operator (domain, type, opset).

        Raises:
            popart_exception: the opset is another one, an annotation of the scope is an attribute
                already, or a result has a negative dimension.
        """
        domain, op_type, opset = operator
        log("builder", "TRACE", f"Adding {domain or 'ai.onnx'}.{op_type}:{opset}")
        self._graph.require_opset(domain, opset)
        info = DebugInfo(debug, LAYER)
        written = dict(attributes)
        if op_type not in _WITHOUT_ID:
            written = dict(sorted({**written, _DEBUG_ID: info.getId()}.items()))
        for name, value in self._scopes.attributes().items():
            if name in written:
                raise popart_exception(f"Node already has attribute {name}.")
            written[name] = value
        title = debug.getPathName()
        named = bool(title) or self._scopes.has_name
        node_name = self._scopes.full_name(title or op_type) if named else ""
        self._graph.add_node((domain, op_type), inputs, outputs, written, node_name)
        if info.is_recorded:
            info.setValue("category", "api")
            info.setValue("api", method)
            info.setValue("inputs", list(inputs))
            info.setValue("outputs", list(outputs))
            info.setValue("attributes", {key: str(value) for key, value in attributes.items()})

    def customOp(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add an operator of any domain; the names of its results.

        Parameters: ``opName``, ``opVersion``, ``domain``, ``inputs``, ``attributes`` (a dict of
        numbers, texts and lists of numbers), ``numOutputs=1``, ``name=""``.

        Raises:
            popart_exception: an attribute is of another kind.
        """
        result: list[str] = call_form("customOp", (_BuilderCore._custom,), self, args, kwargs)
        return result

    def _custom(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: dict[str, object],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        # The opset of a domain of custom operators is always 1.
        said = {**attributes, _OP_VERSION: opVersion} if opVersion != 1 else attributes
        stored = {key: _custom_value(key, value) for key, value in sorted(said.items())}
        outputs = self.new_results(opName, numOutputs)
        for tensor in inputs:
            if tensor:
                self.require_tensor(tensor)
        version = self._graph.opsets.get(domain, 1)
        operator = (domain, opName, version)
        self.add_op(operator, inputs, outputs, stored, DebugContext(name), "customOp")
        return outputs

    @native
    def checkpointOutput(self, nodeOutputNames: Sequence[str]) -> list[str]:
        """Let the backward pass keep tensors: the names of copies of them, to be used instead."""
        version = self._graph.opsets.get("", DEFAULT_ONNX_OPSET)
        copies: list[str] = []
        for name in nodeOutputNames:
            self.require_tensor(name)
            [copy] = self.new_results("Identity", 1)
            operator = ("", "Identity", version)
            self.add_op(
                operator, [name], [copy], {}, DebugContext("Checkpoint"), "checkpointOutput"
            )
            node = self._graph.node_with([copy])
            write(node, ATTRIBUTES["recompute"], int(RecomputeType.Checkpoint))
            write(node, ATTRIBUTES["exclude_patterns"], ["PreUniRepl", "PostNRepl"])
            copies.append(copy)
        return copies

    # -- the model -------------------------------------------------------------------------------

    @native
    def addOutputTensor(self, outputName: str) -> None:
        """Make a tensor an output of the model."""
        if not self._graph.has_tensor(outputName):
            log("builder", "WARN", f"Tensor {outputName} is made an output, but does not exist")
        self._graph.add_output(outputName)

    @native
    def setGraphName(self, name: str) -> None:
        """Name the graph; "" gives it a name of its own."""
        self._graph.proto.graph.name = name or f"_{next(_UNNAMED)}"

    def getModelProto(self) -> bytes:
        """The model as ONNX's message, unchecked.

        Raises:
            popart_exception: it is larger than a message can be, 2 GB.
        """
        try:
            serialised: bytes = self._graph.finished().SerializeToString()
        except (ValueError, EncodeError) as error:
            raise popart_exception(
                "The model is larger than 2 GB, too large for one message: move weights to a file "
                "with saveInitializersExternally"
            ) from error
        return serialised

    @native
    def saveModelProto(self, filename: str) -> None:
        """Write the model to a file.

        Raises:
            RuntimeError: ONNX's checker refuses it.
            popart_exception: the file cannot be written.
        """
        check_model(self._graph.finished())
        try:
            Path(filename).write_bytes(self.getModelProto())
        except OSError as error:
            raise popart_exception(f"Failed to open file {filename}") from error

    @native
    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Move the data of weights to a file.

        Raises:
            popart_exception: the file cannot be written, or a name is no weight with data.
        """
        save_externally(self._graph.weight, ids, filename)

    @native
    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Note the number of replicas in the model."""
        self._graph.add_metadata("__replicationFactor", str(replicationFactor))

    # -- what is known ---------------------------------------------------------------------------

    def getInputTensorIds(self) -> list[str]:
        """The names of the inputs, weights included."""
        return self._graph.named_tensors()[0]

    def getOutputTensorIds(self) -> list[str]:
        """The names of the outputs."""
        return self._graph.named_tensors()[1]

    def getValueTensorIds(self) -> list[str]:
        """The names of what nodes compute."""
        return self._graph.named_tensors()[2]

    def getTrainableTensorIds(self) -> list[str]:
        """The names of the weights."""
        return self._graph.weights()

    @native
    def isInitializer(self, id: str) -> bool:  # noqa: A002
        """True if a tensor is a weight."""
        return self._graph.weight(id) is not None

    @native
    def getTensorShape(self, id: str) -> list[int]:  # noqa: A002
        """The shape of a tensor; [] if it is not known.

        Raises:
            popart_exception: there is no such tensor.
        """
        type_ = self._known_type(id)
        return [] if type_ is None else list(type_.shape)

    @native
    def getTensorDtypeString(self, id: str) -> str:  # noqa: A002
        """The lower-case name of a tensor's element type; "undefined" if it is not known.

        Raises:
            popart_exception: there is no such tensor.
        """
        type_ = self._known_type(id)
        data_type = data_type_of_onnx(0 if type_ is None else type_.element)
        return element_type(data_type).name

    def _known_type(self, name: str) -> InferredType | None:
        type_ = self._graph.type_of(name)
        if type_ is None:
            inputs, outputs, values = self._graph.named_tensors()
            if name not in (*inputs, *outputs, *values):
                raise popart_exception(
                    f"{name} is not an known tensor. Must be one of (inputs:{', '.join(inputs)}) "
                    f"(outputs:{', '.join(outputs)}) (values:{', '.join(values)})"
                )
        return type_


def _custom_value(name: str, value: object) -> int | float | str | list[int] | list[float]:
    """The value of an attribute of a custom operator.

    Raises:
        popart_exception: it is of no kind that such an attribute can be of.
    """
    if isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        if all(isinstance(item, int) for item in value):
            return [int(item) for item in value]
        if all(isinstance(item, float) for item in value):
            return [float(item) for item in value]
        raise popart_exception(
            f"Invalid or mismatched python list type in custom op attribute '{name}': a list must "
            f"hold whole numbers only, or floats only"
        )
    raise popart_exception(f"Invalid type provided in custom op attribute '{name}'")


def _require_opsets(opsets: Mapping[str, int]) -> None:
    """Check the opsets of a model that a builder is to go on from."""
    version = opsets.get("", DEFAULT_ONNX_OPSET)
    if not _OLDEST_OPSET <= version <= _NEWEST_OPSET:
        raise popart_exception(
            f"Encountered ONNX opset version {version}, but the builder supports versions "
            f"{_OLDEST_OPSET} to {_NEWEST_OPSET}"
        )
    graphcore = opsets.get("ai.graphcore", 1)
    if graphcore != 1:
        raise popart_exception(
            f"Encountered ai.graphcore opset version {graphcore}, but there is only version 1"
        )
