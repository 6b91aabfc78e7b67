"""The inputs and weights that a builder adds to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popc.frontend import InferredType
from popc.popart.builder_scopes import NodeBase
from popc.popart.calls import call_form, native
from popc.popart.debug import LAYER, DebugContext, DebugInfo
from popc.popart.dtypes import data_type_named, element_type
from popc.popart.errors import popart_exception
from popc.popart.groups import VariableSettings
from popc.popart.inputs import InputSettings
from popc.popart.tensorinfo import _TensorInfoCore

__all__ = ["InputMethods"]


class InputMethods(NodeBase):
    """The methods of a builder about inputs and weights."""

    __slots__ = ()

    def addInputTensor(self, *args: Any, **kwargs: Any) -> str:
        """Add an input of the model; its name.

        Forms: ``(tensorInfo, debugContext="")``, ``(dataType, shape, debugContext="")``, and both
        with ``settings``, an `InputSettings`, before ``debugContext``.

        Raises:
            popart_exception: there is no such element type.
        """
        cls = InputMethods
        forms = (cls._input_info, cls._input_named, cls._input_info_set, cls._input_named_set)
        return str(call_form("addInputTensor", forms, self, args, kwargs))

    def _input_info(
        self, tensorInfo: _TensorInfoCore, debugContext: DebugContext | str = ""
    ) -> str:
        return self._add_input(tensorInfo, InputSettings(), debugContext)

    def _input_named(
        self, dataType: str, shape: Sequence[int], debugContext: DebugContext | str = ""
    ) -> str:
        return self._add_input(_info(dataType, shape), InputSettings(), debugContext)

    def _input_info_set(
        self,
        tensorInfo: _TensorInfoCore,
        settings: InputSettings,
        debugContext: DebugContext | str = "",
    ) -> str:
        return self._add_input(tensorInfo, settings, debugContext)

    def _input_named_set(
        self,
        dataType: str,
        shape: Sequence[int],
        settings: InputSettings,
        debugContext: DebugContext | str = "",
    ) -> str:
        return self._add_input(_info(dataType, shape), settings, debugContext)

    def _add_input(
        self, info: _TensorInfoCore, settings: InputSettings, debug: DebugContext | str
    ) -> str:
        name = self._new_input(debug, "input")
        element = element_type(info.dataType()).onnx
        self._graph.add_input(name, InferredType(element, tuple(info.shape())))
        self._note_variable(debug, name, info.shape(), info.data_type_lcase())
        for key, value in (
            ("__tile_set", settings.tileSet()),
            ("__exchange_strategy", settings.exchangeStrategy()),
            ("__replicated_stream_mode", settings.replicatedStreamMode()),
        ):
            self._graph.add_metadata(f"{key}/{name}", str(int(value)))
        return name

    def _new_input(self, debug: DebugContext | str, default: str) -> str:
        name = _as_context(debug).getPathName() or default
        return self._graph.new_name(self._scopes.full_name(name))

    @native
    def addUntypedInputTensor(self, debugContext: DebugContext | str = "") -> str:
        """Add an input of a subgraph, whose type its caller tells; its name.

        Raises:
            popart_exception: this is no subgraph.
        """
        if self._graph.parent is None:
            raise popart_exception(
                "Can not add untyped tensors to the top-level graph. Use "
                "Builder::addInputTensor(TensorInfo tensorInfo, std::string debugName) instead."
            )
        name = self._new_input(debugContext, "input")
        self._graph.add_input(name, None)
        self._note_variable(debugContext, name, [], "undefined")
        return name

    @native
    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Add a tensor of a graph around this one as an input, under its name.

        Raises:
            popart_exception: no builder around this one has made it.
        """
        above = self._graph.parent
        if above is None or not above.has_tensor(tensorId):
            raise popart_exception(
                f"Failed to add unrecognised Tensor {tensorId} from higher scope to subgraph: no "
                f"builder above has made it"
            )
        self._graph.add_parent_tensor(tensorId)

    def addInitializedInputTensor(self, *args: Any, **kwargs: Any) -> str:
        """Add a weight with its value; its name.

        Forms: ``(initVal, debugContext="")``, ``(initVal, variableSettings, debugContext="")``.

        Raises:
            popart_exception: data of that type are not taken, or the settings have no `CommGroup`.
        """
        cls = InputMethods
        forms = (cls._weight, cls._weight_set)
        return str(call_form("addInitializedInputTensor", forms, self, args, kwargs))

    def _weight(self, initVal: np.ndarray[Any, Any], debugContext: DebugContext | str = "") -> str:
        return self._weight_set(initVal, VariableSettings(), debugContext)

    def _weight_set(
        self,
        initVal: np.ndarray[Any, Any],
        variableSettings: VariableSettings,
        debugContext: DebugContext | str = "",
    ) -> str:
        domain = variableSettings.getSharedVariableDomain()
        name = self._new_input(debugContext, "init_input")
        self._graph.add_weight(name, initVal)
        self._note_variable(debugContext, name, list(initVal.shape), str(initVal.dtype))
        for key, value in (
            ("__comm_group_type", int(domain.type)),
            ("__comm_group_size", domain.replicaGroupSize),
            ("__variable_settings", int(variableSettings.getRetrievalMode())),
        ):
            self._graph.add_metadata(f"{key}/{name}", str(value))
        return name

    def _note_variable(
        self, debug: DebugContext | str, name: str, shape: Sequence[int], kind: str
    ) -> None:
        info = DebugInfo(_as_context(debug), LAYER)
        values = {"category": "variable", "tensorId": name, "shape": str(shape), "type": kind}
        for key, value in values.items():
            info.setValue(key, value)
        self._graph.add_metadata(f"__debug_id/input/{name}", str(info.getId()))


def _as_context(debug: DebugContext | str) -> DebugContext:
    return DebugContext(debug) if isinstance(debug, str) else debug


def _info(dataType: str, shape: Sequence[int]) -> _TensorInfoCore:
    return _TensorInfoCore(data_type_named(dataType), shape)
