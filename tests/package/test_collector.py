"""The collector of cycles rests while a program is compiled, and goes on as before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
from onnx import TensorProto, helper

import popc
from popc.collector import without_collector
from popc.ir import Graph, Op


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_as_before_afterwards(*, was_enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if was_enabled else gc.disable)()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert gc.isenabled() is was_enabled
        with pytest.raises(KeyError), without_collector():
            raise KeyError
        assert gc.isenabled() is was_enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("is_seen", [True, False])
def test_graphs_are_gone_without_the_collector_unless_somebody_has_seen_them(
    *, is_seen: bool
) -> None:
    seen: list[Graph] = []
    before = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        known = set(map(id, gc.get_objects()))
        look = (lambda _, graph, __: seen.append(graph)) if is_seen else None
        popc.compile(_model(), on_graph=look)
        left = [op for op in gc.get_objects() if isinstance(op, Op) and id(op) not in known]
    finally:
        (gc.enable if before else gc.disable)()
    assert len(left) == (3 if is_seen else 0)  # a load, the softmax, a store
    assert [len(graph.ops) for graph in seen[-1:]] == [3] * is_seen


def _model() -> bytes:
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    (x, y) = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph(nodes, "one", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model


_VARIABLE = "OPENBLAS_THREAD_TIMEOUT"


@pytest.mark.parametrize("said", ["", "7"])
def test_the_patience_of_threads_is_set_while_numpy_is_imported(said: str) -> None:
    # numpy is new only in a new process.
    code = f"""
import os, sys
from popc.collector import importing
before = os.environ.get({_VARIABLE!r})
assert "numpy" not in sys.modules
with importing("popc.api"):
    import numpy
    meanwhile = os.environ.get({_VARIABLE!r})
assert os.environ.get({_VARIABLE!r}) == before
print(meanwhile)
"""
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    if said:
        environment[_VARIABLE] = said
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == (said or "20")


_VERB = f"""
import os, sys
from importlib.abc import MetaPathFinder


class Watching(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print(os.environ.get({_VARIABLE!r}))


from popc.cli.root import run
assert "numpy" not in sys.modules
sys.meta_path.insert(0, Watching())
run(["compile", "--help"])
"""


def test_the_patience_of_threads_is_set_while_a_verb_imports_numpy() -> None:
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", _VERB], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == "20"
