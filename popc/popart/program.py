"""The program of a session: from the model to something that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import popc_runtime
from popc.api import archive_of
from popc.compiler import (
    Planned,
    Transformed,
    lower_program,
    plan_transformed,
    transform_program,
)
from popc.frontend import LoadedModel
from popc.ir import Graph, Op, TensorType
from popc.ops import OPS
from popc.options import Options
from popc.popart.distributed import group_of
from popc.popart.dtypes import data_type_named
from popc.popart.enums import DataType
from popc.popart.listings import Listings
from popc.popart.options import SessionOptions
from popc.popart.tensorinfo import _TensorInfoCore
from popc.progress import Snapshot, Watch
from popc.request import CompileRequest
from popc.training import TrainingSettings
from popc_runtime import Executable
from popc_runtime.format import DType

__all__ = ["Program", "info_of"]

_NAMES = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
}


def info_of(type_: TensorType) -> _TensorInfoCore:
    """A type of popc as PopART's."""
    name = _NAMES.get(type_.dtype, type_.dtype.value.upper())
    known = data_type_named(name) if name in DataType.__members__ else DataType.UNDEFINED
    return _TensorInfoCore(known, type_.shape)


@dataclass
class Program:
    """A model with everything that is fixed about it, as far as it has been compiled.

    Attributes:
        read: Gives the model, when it is compiled.
        options: The options of popc.
        anchors: The tensors that are returned.
        training: How it is trained, if it is.
        infos: Types of all tensors that there have been, by name.
        listings: The drawings that are made on the way.
    """

    read: Callable[[], LoadedModel]
    options: Options
    anchors: Sequence[str]
    training: TrainingSettings | None
    infos: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    listings: Listings = field(default_factory=Listings)
    _has_names: bool = False
    _transformed: Transformed | None = None
    _planned: Planned | None = None

    def transform(self) -> Transformed:
        """The program whose graph is not edited any more."""
        if self._transformed is None:
            outputs = () if self.training else tuple(self.anchors)
            loaded = self.read()
            request = CompileRequest(loaded, self.options, outputs=outputs, training=self.training)
            self._transformed = transform_program(request, loaded, self._watch)
        return self._transformed

    @property
    def _watch(self) -> Watch:
        return Watch(on_graph=self._note_types)

    def _note_types(self, checkpoint: Snapshot, graph: Graph, order: Sequence[Op] | None) -> None:
        self.listings.draw(checkpoint, graph, order)
        for name, tensor in zip(graph.output_names, graph.outputs, strict=True):
            # As the model has them, before they are cut among replicas.
            if not self._has_names or name in self.anchors:
                self.infos.setdefault(name, tensor.type)
        self._has_names = True
        for name, tensor in graph.tensors.items():
            self.infos.setdefault(name, tensor.type)

    @property
    def is_random(self) -> bool:
        """True if it draws random numbers."""
        graphs = self.transform().graph.walk()
        specs = (OPS.get(op.op_type) for graph in graphs for op in graph.ops)
        return any(spec is not None and spec.random for spec in specs)

    def planned(self) -> Planned:
        """The program whose ops have an order."""
        if self._planned is None:
            self._planned = plan_transformed(self.transform(), self._watch)
        return self._planned

    def archive(self) -> bytes:
        """The program as an archive."""
        return archive_of([lower_program(self.planned())]).to_bytes()

    def orders(self) -> Mapping[Graph, Sequence[Op]]:
        """The ops of all graphs in the order in which they run."""
        return self.planned().schedule.orders


def load_program(archive: bytes, seed: int, options: SessionOptions) -> Executable:
    """An executable of an archive, on the replicas of this process; the first run binds it."""
    return popc_runtime.load(archive, seed=seed, group=group_of(options), bind_late=True)
