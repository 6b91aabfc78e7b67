"""The tensors that are kept in each place."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from math import prod
from typing import Final

from popc.ir import Graph, Op, StepPart, Tensor
from popc.ops.collectives import places_in_groups
from popc.ops.control import inner_names, loop_states
from popc.ops.load import find_load_ops
from popc.options import Options, did_you_mean
from popc.options.locations import TensorLocation, parse_location
from popc.transforms.streaming.sources import COMPUTE, StreamedValue, TileSets
from popc.transforms.streaming.views import base_of
from popc_runtime.errors import OptionError, SpokenHint
from popc_runtime.format import VariableRole
from popc_runtime.ground.frozen import frozen

__all__ = ["StorageMap", "StoredTensor"]

_FUSED: Final = "a fused op has no tensors inside"


@frozen
class StoredTensor:
    """A variable or constant, or a state of a main loop, that has to be fetched."""

    kind: str
    off_chip: bool
    whole: tuple[int, ...] | None = None
    group: tuple[int, int] = (1, 1)
    tiles: TileSets = COMPUTE

    def source(self, tensor: Tensor) -> StreamedValue:
        """``tensor``, which is it, or another name of it."""
        remote = tensor if self.off_chip else None
        return StreamedValue(tensor, self.kind, remote, self.whole, self.group, tiles=self.tiles)


class StorageMap:
    """Decides, by what the options say."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph = graph
        self.options = options
        self.stored: dict[Tensor, StoredTensor] = {}

    @property
    def needed(self) -> bool:
        """True if anything may be kept elsewhere than on one chip."""
        return any(
            location.is_off_chip or location.replicated_tensor_sharding
            for _, location in self.options.locations_in_use()
        ) or any(op.settings.location for nested in self.graph.walk() for op in nested.ops)

    def settle(self) -> int:
        """Decide about variables and constants, and give those that are divided their types.

        Returns: how many are kept elsewhere than whole on the chip.

        Raises:
            OptionError: names or patterns of tensors fit none.
        """
        self._require_names()
        for variable in self.graph.variables:
            self._settle_variable(variable)
        if not self._trains():
            self._settle_constants()
        return len(self.stored)

    def _trains(self) -> bool:
        """True if weights are variables that an optimizer updates; then constants are none."""
        ops = (op for part in self.graph.walk() for op in part.ops)
        return any(op.settings.part is StepPart.UPDATE for op in ops)

    # -- variables -------------------------------------------------------------------------------

    def _settle_variable(self, variable: Tensor) -> None:
        if variable.role is VariableRole.HYPER_PARAMETER:
            return
        kind = "weight" if variable.role is VariableRole.WEIGHT else "optimizer_state"
        location = self.options.tensor_location(kind, variable.name)
        size = prod(variable.whole) if variable.whole else variable.type.size
        variable.off_chip = location.keeps_off_chip(size)
        group = self._division(variable, location) if kind == "weight" else None
        whole = variable.type.shape if group else None
        if group is not None:
            self._divide(variable, *group)
        if variable.off_chip or whole is not None:
            tiles = self.tiles(location)
            self.stored[variable] = StoredTensor(
                kind, variable.off_chip, whole, group or (1, 1), tiles
            )

    def _division(self, variable: Tensor, location: TensorLocation) -> tuple[int, int] | None:
        """Size and stride of the groups of replicas that divide a weight; ``None`` if none do."""
        replicas = self.options.replicated_graph_count
        written_in_parts = any("start" in op.attributes for op in _writers(self.graph, variable))
        if replicas == 1 or variable.rows or written_in_parts:
            return None
        domain = location.sharding_domain
        group = domain.members(replicas), domain.stride(replicas)
        return group if location.divides(variable.type.size) else None

    def _divide(self, variable: Tensor, size: int, stride: int) -> None:
        """Let the variable, by all its names, be the part that a replica holds."""
        variable.whole = variable.type.shape
        variable.rows = places_in_groups(size, stride, self.options.replicated_graph_count)
        part = variable.type.with_shape((-(-variable.type.size // size),))
        for name in [variable, *_nested_names(variable)]:
            name.type = part

    def tiles(self, location: TensorLocation) -> TileSets:
        """The tiles that move what is kept there."""
        return TileSets(location.load_tile_set.value, location.storage_tile_set.value)

    # -- constants -------------------------------------------------------------------------------

    def _settle_constants(self) -> None:
        """Weights of a program that does not train, as they were given or computed at load."""
        load = find_load_ops(self.graph)
        at_load = frozenset(load)
        for part in self.graph.walk():
            for tensor in part.constants:
                location = self.options.tensor_location("weight", tensor.name)
                if location.keeps_off_chip(tensor.type.size) and _is_data(tensor):
                    self.stored[tensor] = StoredTensor(
                        "weight", off_chip=True, tiles=self.tiles(location)
                    )
        for op in load:
            for tensor in op.outputs:
                self._settle_result(tensor, at_load)

    def _settle_result(self, tensor: Tensor, at_load: frozenset[Op]) -> None:
        """Put what load time computes into streaming memory, if a run reads it."""
        location = self.options.tensor_location("weight", tensor.name)
        if base_of(tensor).is_constant or not location.keeps_off_chip(tensor.type.size):
            return
        if base_of(tensor) is tensor and any(_reads_on_run(tensor, at_load)):
            self.stored[tensor] = StoredTensor("weight", off_chip=True, tiles=self.tiles(location))

    # -- activations and sums --------------------------------------------------------------------

    def keeps_activation(self, tensor: Tensor) -> TensorLocation | None:
        """The place where a result of the forward pass is kept, if that is off chip."""
        said = "" if tensor.producer is None else tensor.producer.settings.location
        own = parse_location(said)
        location = self.options.tensor_location("activation", tensor.name, own)
        return location if location.keeps_off_chip(tensor.type.size) else None

    def keeps_sum(self, op: Op, index: int) -> TensorLocation | None:
        """The place of state ``index`` of an accumulation loop, if it is a sum and off chip."""
        body = op.subgraphs["body"]
        state = loop_states(op)[index]
        result = body.outputs[1 + index]
        maker = result.producer
        is_sum = maker is not None and maker.settings.part >= StepPart.BACKWARD
        if body.name != "accumulationLoop" or not is_sum or not state.inner.uses:
            return None
        location = self.options.tensor_location("accumulator", state.result.name)
        return location if location.keeps_off_chip(state.inner.type.size) else None

    # -- mistakes --------------------------------------------------------------------------------

    def _require_names(self) -> None:
        names = [name for part in self.graph.walk() for name in part.tensors]
        unknown = [
            pattern
            for pattern in self.options.tensor_location_override
            if pattern not in names and not any(fnmatchcase(name, pattern) for name in names)
        ]
        if unknown:
            raise OptionError(
                "tensor_location_override names tensors that the program does not have",
                subject="tensor_location_override",
                details=tuple(
                    f"{missing!r} matches no tensor; {did_you_mean(missing, names)}".rstrip("; ")
                    for missing in unknown
                ),
                hint=SpokenHint(
                    f"on_artefact is told the names of the tensors; {_FUSED}",
                    f"--emit-ir lists the tensors; {_FUSED}",
                ),
            )


def _writers(graph: Graph, variable: Tensor) -> Iterator[Op]:
    names = {variable, *_nested_names(variable)}
    for part in graph.walk():
        for op in part.ops:
            if op.op_type == "CopyVarUpdate" and op.operand(0) in names:
                yield op


def _nested_names(tensor: Tensor) -> list[Tensor]:
    """The names of a tensor in nested graphs that capture it: not states that start as it."""
    found: list[Tensor] = []
    for op in tensor.uses:
        for inner in inner_names(op, tensor):
            found += [inner, *_nested_names(inner)]
    return found


def _is_data(tensor: Tensor) -> bool:
    return bool(tensor.uses) and tensor.type.rank > 0


def _reads_on_run(tensor: Tensor, at_load: frozenset[Op]) -> Iterator[bool]:
    for op in tensor.uses:
        if op not in at_load:
            yield True
        elif base_of(op.outputs[0]) is tensor:
            yield from _reads_on_run(op.outputs[0], at_load)
