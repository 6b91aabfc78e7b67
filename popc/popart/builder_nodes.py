"""The builder's settings of single nodes: their attributes, and how they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.frontend import find_attribute
from popc.popart import node_attributes as attributes
from popc.popart.builder_scopes import NodeBase
from popc.popart.calls import call_form, native
from popc.popart.errors import popart_exception
from popc.popart.scopes import ATTRIBUTES

__all__ = ["NodeMethods"]

_PARTIALS: Final = "__partials_type"
_DITHERING: Final = "__enable_conv_dithering"
_SERIALIZED: Final = "__serialize_matmul"
_INPLACE: Final = "__inplace_op"
_MODES: Final = ("input_channels", "reducing_dim", "output_channels", "none")


class NodeMethods(NodeBase):
    """The methods of a builder about nodes, which are named by all of their outputs."""

    __slots__ = ()

    # -- attributes ------------------------------------------------------------------------------

    @native
    def addNodeAttribute(
        self,
        attributeName: str,
        attributeValue: int | Sequence[int] | float | Sequence[float] | str | Sequence[str],
        nodeOutputNames: set[str],
    ) -> None:
        """Give a node a new attribute.

        Raises:
            popart_exception: there is no such node, or it has an attribute of that name.
        """
        attributes.write(self._node(nodeOutputNames), attributeName, attributeValue)

    @native
    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: set[str]) -> bool:
        """True if a node has an attribute."""
        return find_attribute(self._node(nodeOutputNames), attributeName) is not None

    @native
    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: set[str]) -> int:
        """The whole number that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return int(attributes.read(self._node(nodeOutputNames), attributeName, attributes.INT))

    @native
    def getInt64VectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: set[str]
    ) -> list[int]:
        """The whole numbers that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return list(attributes.read(self._node(nodeOutputNames), attributeName, attributes.INTS))

    @native
    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: set[str]) -> float:
        """The number that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return float(attributes.read(self._node(nodeOutputNames), attributeName, attributes.FLOAT))

    @native
    def getFloatVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: set[str]
    ) -> list[float]:
        """The numbers that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return list(attributes.read(self._node(nodeOutputNames), attributeName, attributes.FLOATS))

    @native
    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: set[str]) -> str:
        """The text that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return str(attributes.read(self._node(nodeOutputNames), attributeName, attributes.STRING))

    @native
    def getStringVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: set[str]
    ) -> list[str]:
        """The texts that an attribute is.

        Raises:
            popart_exception: there is no such node or attribute, or it is of another kind.
        """
        return list(attributes.read(self._node(nodeOutputNames), attributeName, attributes.STRINGS))

    @native
    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: set[str]) -> None:
        """Take an attribute from a node.

        Raises:
            popart_exception: there is no such node or attribute.
        """
        attributes.remove(self._node(nodeOutputNames), attributeName)

    @native
    def getAllNodeAttributeNames(self, nodeOutputNames: set[str]) -> list[str]:
        """The names of a node's attributes, annotations included."""
        return [attribute.name for attribute in self._node(nodeOutputNames).attribute]

    # -- how nodes are computed ------------------------------------------------------------------

    @native
    def excludePatterns(self, nodeOutputName: str, patternNames: Sequence[str]) -> None:
        """Let patterns leave a node as it is."""
        self._annotate("exclude_patterns", nodeOutputName, list(patternNames))

    @native
    def setPartialsType(self, nodeOutputName: str, partialsType: str) -> None:
        """Choose the type of partial sums of a Conv or MatMul.

        Raises:
            popart_exception: the node is another one, or has a type of partial sums.
        """
        node = self._node(nodeOutputName)
        if node.op_type not in ("Conv", "MatMul"):
            raise popart_exception(
                "Builder::setPartialsType should only be called on operators: Conv, MatMul; but "
                f"was given: {node.op_type}"
            )
        attributes.write(node, _PARTIALS, partialsType)

    @native
    def getPartialsType(self, nodeOutputName: str) -> str:
        """The type of partial sums of a node; "FLOAT" if none was chosen."""
        node = self._node(nodeOutputName)
        if find_attribute(node, _PARTIALS) is None:
            return "FLOAT"
        return str(attributes.read(node, _PARTIALS, attributes.STRING))

    def setAvailableMemoryProportion(self, *args: Any, **kwargs: Any) -> None:
        """Limit the memory that a node may use for working.

        Forms: ``(nodeOutputName, availableMemoryProportion)``, the same with ``nodeOutputNames``,
        a set.

        Raises:
            popart_exception: it is not above 0 and at most 1.
        """
        cls = NodeMethods
        forms = (cls._limit_named, cls._limit_several)
        call_form("setAvailableMemoryProportion", forms, self, args, kwargs)

    def _limit_named(self, nodeOutputName: str, availableMemoryProportion: float) -> None:
        self._limit_several({nodeOutputName}, availableMemoryProportion)

    def _limit_several(self, nodeOutputNames: set[str], availableMemoryProportion: float) -> None:
        if not 0 < availableMemoryProportion <= 1:
            raise popart_exception(
                "availableMemoryProportion must be in (0,1] but was set to "
                f"{availableMemoryProportion}"
            )
        node = self._node(nodeOutputNames)
        if find_attribute(node, ATTRIBUTES["available_memory"]) is not None:
            attributes.remove(node, ATTRIBUTES["available_memory"])
        attributes.write(node, ATTRIBUTES["available_memory"], availableMemoryProportion)

    @native
    def setEnableConvDithering(self, nodeOutputName: str, enableConvDithering: int) -> None:
        """Choose whether convolutions begin on different tiles.

        Raises:
            popart_exception: the value is not 0 or 1, or the node is no Conv.
        """
        if enableConvDithering not in (0, 1):
            raise popart_exception("enableConvDithering must be a bool value")
        node = self._node(nodeOutputName)
        if node.op_type != "Conv":
            raise popart_exception(
                "Builder::setEnableConvDithering should only be called on convolutions but was "
                f"given: {node.op_type}"
            )
        attributes.write(node, _DITHERING, enableConvDithering)

    @native
    def setSerializeMatMul(
        self, nodeOutputName: set[str], mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Let a MatMul be computed in ``factor`` parts.

        Raises:
            popart_exception: the node is no MatMul, or the mode is not one of PopART's.
        """
        node = self._node(nodeOutputName)
        if node.op_type != "MatMul":
            raise popart_exception(
                "Builder::setSerializeMatMul should only be called on operators: MatMul; but was "
                f"given: {node.op_type}"
            )
        if mode not in _MODES:
            raise popart_exception(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                f"{', '.join(map(repr, _MODES[:-1]))} or {_MODES[-1]!r}"
            )
        if mode != "none":
            attributes.write(node, f"{_SERIALIZED}_mode", mode)
            attributes.write(node, f"{_SERIALIZED}_factor", factor)
            attributes.write(node, f"{_SERIALIZED}_precision", int(keep_precision))

    @native
    def setInplacePreferences(self, nodeOutputName: str, prefs: dict[str, float]) -> None:
        """Give ops that overwrite an operand priorities, by their names."""
        node = self._node(nodeOutputName)
        pairs = sorted(prefs.items())
        attributes.write(node, f"{_INPLACE}_names", [name for name, _ in pairs])
        attributes.write(node, f"{_INPLACE}_priorities", [priority for _, priority in pairs])
