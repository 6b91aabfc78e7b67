"""The places and times of ops: for a node, or for all ops that are added in a scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from popc.popart import node_attributes as attributes
from popc.popart.calls import call_form, native
from popc.popart.enums import RecomputeType
from popc.popart.graph_model import GraphModel
from popc.popart.locations import TensorLocation
from popc.popart.scopes import ATTRIBUTES, Scope, Scopes

__all__ = ["NodeBase", "ScopeMethods"]


class NodeBase:
    """A builder's graph and scopes; nodes are named by all of their outputs."""

    __slots__ = ()

    _graph: GraphModel
    _scopes: Scopes

    def _node(self, outputs: str | Iterable[str]) -> onnx.NodeProto:
        return self._graph.node_with([outputs] if isinstance(outputs, str) else outputs)

    def _annotate(self, kind: str, outputs: str | Iterable[str], value: Any) -> None:
        attributes.write(self._node(outputs), ATTRIBUTES[kind], value)


class ScopeMethods(NodeBase):
    """The methods of a builder about places, stages, phases and recomputation."""

    __slots__ = ()

    # -- places ----------------------------------------------------------------------------------

    def virtualGraph(self, *args: Any, **kwargs: Any) -> Any:
        """Place a node on a device, or all ops of a scope.

        Forms: ``(nodeOutputNames, value=0)`` with a name, a set or a list; ``(value)``, which
        returns a context manager.
        """
        cls = ScopeMethods
        return call_form("virtualGraph", (cls._place, cls._place_all), self, args, kwargs)

    def _place(self, nodeOutputNames: str | set[str] | Sequence[str], value: int = 0) -> None:
        self._annotate("virtual_graph", nodeOutputNames, value)

    def _place_all(self, value: int) -> Scope:
        return self._scopes.annotated("virtual_graph", value)

    def getVirtualGraph(self, *args: Any, **kwargs: Any) -> int:
        """The device of the scope, or of a node that is given by a name, a set or a list."""
        cls = ScopeMethods
        forms = (cls._scope_graph, cls._node_graph)
        return int(call_form("getVirtualGraph", forms, self, args, kwargs))

    def _scope_graph(self) -> int:
        return int(self._scopes.value("virtual_graph", "Virtual graph"))

    def _node_graph(self, nodeOutputNames: str | set[str] | Sequence[str]) -> int:
        node = self._node(nodeOutputNames)
        return int(attributes.read(node, ATTRIBUTES["virtual_graph"], attributes.INT))

    def hasVirtualGraph(self) -> bool:
        """True if a scope places ops."""
        return self._scopes.has("virtual_graph")

    def pipelineStage(self, *args: Any, **kwargs: Any) -> Any:
        """Put a node into a stage, or all ops of a scope.

        Forms: ``(nodeOutputNames, value=0)`` with a name; ``(value)``, a context manager.
        """
        cls = ScopeMethods
        return call_form("pipelineStage", (cls._stage, cls._stage_all), self, args, kwargs)

    def _stage(self, nodeOutputNames: str, value: int = 0) -> None:
        self._annotate("pipeline_stage", nodeOutputNames, value)

    def _stage_all(self, value: int) -> Scope:
        return self._scopes.annotated("pipeline_stage", value)

    def getPipelineStage(self) -> int:
        """The stage of the scope.

        Raises:
            popart_exception: no scope says one.
        """
        return int(self._scopes.value("pipeline_stage", "Pipeline stage"))

    def hasPipelineStage(self) -> bool:
        """True if a scope puts ops into a stage."""
        return self._scopes.has("pipeline_stage")

    def executionPhase(self, *args: Any, **kwargs: Any) -> Any:
        """Put a node into a phase, or all ops of a scope.

        Forms: ``(nodeOutputNames, value=0)`` with a name or a set; ``(value=0)``, a context
        manager.
        """
        cls = ScopeMethods
        return call_form("executionPhase", (cls._phase, cls._phase_all), self, args, kwargs)

    def _phase(self, nodeOutputNames: str | set[str], value: int = 0) -> None:
        self._annotate("execution_phase", nodeOutputNames, value)

    def _phase_all(self, value: int = 0) -> Scope:
        return self._scopes.annotated("execution_phase", value)

    def getExecutionPhase(self) -> int:
        """The phase of the scope.

        Raises:
            popart_exception: no scope says one.
        """
        return int(self._scopes.value("execution_phase", "Execution phase"))

    def hasExecutionPhase(self) -> bool:
        """True if a scope puts ops into a phase."""
        return self._scopes.has("execution_phase")

    # -- recomputation ---------------------------------------------------------------------------

    def recomputeOutput(self, *args: Any, **kwargs: Any) -> Any:
        """Say of a node whether it is computed once more, or of all ops of a scope.

        Forms: ``(nodeOutputNames, value=RecomputeType.Undefined)`` with a name;
        ``(value=RecomputeType.Undefined)``, a context manager.
        """
        cls = ScopeMethods
        forms = (cls._recompute, cls._recompute_all)
        return call_form("recomputeOutput", forms, self, args, kwargs)

    def _recompute(
        self, nodeOutputNames: str, value: RecomputeType = RecomputeType.Undefined
    ) -> None:
        self._annotate("recompute", nodeOutputNames, int(value))

    def _recompute_all(self, value: RecomputeType = RecomputeType.Undefined) -> Scope:
        return self._scopes.annotated("recompute", int(value))

    def recomputeOutputInBackwardPass(self, *args: Any, **kwargs: Any) -> None:
        """Say of a node whether the backward pass computes it once more.

        Forms: ``(nodeOutputName, value=RecomputeType.Recompute)``, the same with
        ``nodeOutputNames``, a set.
        """
        cls = ScopeMethods
        forms = (cls._recompute_named, cls._recompute_several)
        call_form("recomputeOutputInBackwardPass", forms, self, args, kwargs)

    def _recompute_named(
        self, nodeOutputName: str, value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        self._annotate("recompute", nodeOutputName, int(value))

    def _recompute_several(
        self, nodeOutputNames: set[str], value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        self._annotate("recompute", nodeOutputNames, int(value))

    def getRecomputeOutputInBackwardPass(self, *args: Any, **kwargs: Any) -> bool:
        """True if a node says anything about that, "checkpoint" included.

        Forms: ``(nodeOutputName)``, ``(nodeOutputNames)``, a set.

        Raises:
            popart_exception: it has no such attribute.
        """
        cls = ScopeMethods
        forms = (cls._recomputed_named, cls._recomputed_several)
        return bool(call_form("getRecomputeOutputInBackwardPass", forms, self, args, kwargs))

    def _recomputed_named(self, nodeOutputName: str) -> bool:
        return self._recomputed_several({nodeOutputName})

    def _recomputed_several(self, nodeOutputNames: set[str]) -> bool:
        node = self._node(nodeOutputNames)
        return bool(attributes.read(node, ATTRIBUTES["recompute"], attributes.INT))

    # -- further scopes --------------------------------------------------------------------------

    def outputTensorLocation(self, *args: Any, **kwargs: Any) -> Any:
        """Say where the results of a node are kept, or those of all ops of a scope.

        Forms: ``(nodeOutputNames, value=TensorLocation())`` with a name;
        ``(value=TensorLocation())``, a context manager.
        """
        cls = ScopeMethods
        forms = (cls._locate, cls._locate_all)
        return call_form("outputTensorLocation", forms, self, args, kwargs)

    def _locate(self, nodeOutputNames: str, value: TensorLocation | None = None) -> None:
        location = value or TensorLocation()
        self._annotate("output_tensor_location", nodeOutputNames, location.numbers())

    def _locate_all(self, value: TensorLocation | None = None) -> Scope:
        location = value or TensorLocation()
        return self._scopes.annotated("output_tensor_location", location.numbers())

    @native
    def schedulePriority(self, value: float) -> Scope:
        """A scope in which ops have a priority in the schedule."""
        return self._scopes.annotated("schedule_priority", value)

    @native
    def commGroup(self, type: int = 0, groupSize: int = 0) -> Scope:  # noqa: A002
        """A scope in which collective operators work in groups."""
        return self._scopes.annotated("comm_group", [type, groupSize])

    def outlineAttributes(self, attributes: Mapping[object, object], /) -> Scope:
        """A scope in which only ops with the same attributes are outlined together."""
        if not isinstance(attributes, dict):
            raise TypeError(
                "outlineAttributes(): incompatible function arguments. The following argument "
                "types are supported:\n    1. (arg0: dict)"
            )
        return self._scopes.outlined({str(key): str(value) for key, value in attributes.items()})

    @native
    def nameScope(self, name: str) -> Scope:
        """A scope in which names of tensors and nodes begin with ``name`` and a slash."""
        return self._scopes.named(name)

    @native
    def getNameScope(self, name: str = "") -> str:
        """``name`` behind those of the open scopes."""
        return self._scopes.full_name(name)
