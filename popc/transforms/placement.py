"""Put ops on chips, and copies between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Self

from popc import placement  # its files are imported where something is placed
from popc.ir import Graph
from popc.options import Options, VirtualGraphMode
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["AutomaticPlacement", "FinalPlacement", "LatePlacement", "Placement"]

# Under these nothing is divided.
_GIVEN: Final = (VirtualGraphMode.OFF, VirtualGraphMode.MANUAL)


@frozen
class Placement(Pass):
    """Ops that the model does not place go where their operands are, and values are copied.

    Before, with ``%a`` on chip 0 and ``%b`` on chip 1::

        %x = HostLoad() stream='x'
        %a = Relu(%x)                       chip 0
        %b = Exp(%a)                        chip 1
        HostStore(%b) stream='y'

    After::

        %x = HostLoad() stream='x'          chip 0
        %a = Relu(%x)                       chip 0
        %a_c1 = IpuCopy(%a)                 chip 0, to chip 1
        %b = Exp(%a_c1)                     chip 1
        HostStore(%b) stream='y'            chip 1

    Before anything is fused, so that no fusion goes across chips: a copy is in between.  Between
    stages and phases of one chip, a Boundary is.  If no op is placed nothing happens.
    """

    name: ClassVar[str] = "placement"
    optional: ClassVar[bool] = False

    def run(self, graph: Graph) -> int:
        """Place ops, and add copies; how many."""
        return placement.follow_annotations(graph) if placement.is_placed(graph) else 0

    def problems(self, graph: Graph) -> Sequence[str]:
        """Ops without a place, and values that are read on other chips."""
        return tuple(placement.find_crossings(graph)) if placement.is_placed(graph) else ()


@frozen
class AutomaticPlacement(Placement):
    """Divide a model that nobody has placed among chips, if the options ask for it."""

    name: ClassVar[str] = "automatic_placement"
    options: Options
    trains: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options, context.before_gradients)

    def run(self, graph: Graph) -> int:
        """Place ops, and add copies; how many."""
        if self.options.virtual_graph_mode in _GIVEN:
            return 0
        return placement.place(graph, self.options, trains=self.trains)


@frozen
class LatePlacement(Placement):
    """Place what passes have added since; all copies between chips are there."""

    name: ClassVar[str] = "late_placement"

    def run(self, graph: Graph) -> int:
        """Place ops; how many."""
        return placement.fill_places(graph) if placement.is_placed(graph) else 0


@frozen
class FinalPlacement(Placement):
    """Place what passes have added, copy what has come to cross chips, and drop boundaries."""

    name: ClassVar[str] = "final_placement"

    def run(self, graph: Graph) -> int:
        """Place ops, and add copies; how many."""
        changes = 0
        if any(nested.may_have({"Boundary"}) for nested in graph.walk()):
            changes = placement.remove_boundaries(graph)
        if not placement.is_placed(graph):
            return changes
        changes += placement.fill_places(graph)
        return changes + placement.insert_copies(graph, boundaries=False)
