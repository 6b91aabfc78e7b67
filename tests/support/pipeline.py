"""Run a graph through all stages behind the front end, and its archive."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx

import popc_runtime
from popc.archive import Archive, Content, build_archive
from popc.compiler import Compiled, Planned, Transformed
from popc.frontend import ImportedModel, LoadedModel
from popc.ir import Graph, verify
from popc.lowering import lower
from popc.memory import check_plan, plan_memory
from popc.options import Options
from popc.request import CompileRequest
from popc.schedule import build_schedule, check_schedule
from popc.transforms import transform
from popc_runtime.format import Array

__all__ = ["Program", "run_pipeline"]


class Program:
    """A compiled graph; the passes edit the graph, and every stage is checked."""

    def __init__(self, graph: Graph, options: Options | None = None) -> None:
        archive = _compiled(graph, options or Options(verify_ir=True))
        with tempfile.TemporaryDirectory() as folder:
            path = archive.save(Path(folder) / "graph.popx")
            self._content = path.read_bytes()

    def run(self, feeds: Mapping[str, Array], engine: str = "auto") -> dict[str, Array]:
        """The outputs by name; random numbers start anew."""
        return popc_runtime.load(self._content, engine=engine).run(feeds)


def _compiled(graph: Graph, options: Options) -> Archive:
    named = zip(graph.output_names, graph.outputs, strict=True)
    model = ImportedModel(
        graph,
        tuple((tensor.name, tensor.type) for tensor in graph.inputs),
        tuple((name, tensor.type) for name, tensor in named),
        {},
    )
    assert verify(graph) == []
    transform(graph, options, lambda item: build_schedule(item, options).orders)
    schedule = build_schedule(graph, options)
    assert check_schedule(graph, schedule) == []
    plan = plan_memory(graph, schedule, inplace=options.enable_inplace)
    assert check_plan(graph, schedule, plan) == []
    loaded = LoadedModel(onnx.ModelProto(), "", "0" * 64)
    request = CompileRequest(loaded.proto, options)
    program = Transformed(request, loaded, model, None, (), schedule)
    planned = Planned(program, schedule, plan)
    return build_archive([Content(Compiled(planned, lower(graph, schedule, plan)))])


def run_pipeline(
    graph: Graph, feeds: Mapping[str, Array], options: Options | None = None
) -> dict[str, Array]:
    """The outputs of ``graph`` by name."""
    return Program(graph, options).run(feeds)
