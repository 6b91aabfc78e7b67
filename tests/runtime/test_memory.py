"""Memory is free when the last reference to an executable goes: no collector has to come."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import popc
import popc_runtime
from popc_runtime.format import Array, Packing
from tests.native.panels import model_of, saved
from tests.support.models import affine, counter_loop


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _product(folder: Path, *, pack: bool) -> Path:
    """A product by weights that are stored in panels, or not."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    return saved(model_of(nodes, {"w": weights}, 4, 64), folder, pack_weights=pack)


def _zeros(model: popc_runtime.Executable) -> dict[str, Array]:
    return {spec.name: np.zeros(spec.shape, spec.dtype.storage) for spec in model.inputs}


@pytest.mark.parametrize("engine", ["auto", "numpy"])
@pytest.mark.parametrize("weights", ["in panels", "plain"])
def test_of_products(engine: str, weights: str, tmp_path: Path) -> None:
    pack = weights == "in panels"
    path = _product(tmp_path, pack=pack)
    model = popc_runtime.load(path, engine=engine)
    packings = {slot.packing for slot in model._engine.replicas[0].program.image.slots}
    assert (packings != {Packing.NONE}) is pack
    model.run_buffers(_zeros(model))
    memory = weakref.ref(model._engine.replicas[0].program.memory)
    del model
    assert memory() is None


@pytest.mark.parametrize("engine", ["auto", "numpy"])
@pytest.mark.parametrize("network", [affine, counter_loop])
@pytest.mark.parametrize("replicas", [1, 2])
def test_of_other_programs(engine: str, network: Any, replicas: int, tmp_path: Path) -> None:
    options = {"replicated_graph_count": replicas}
    path = popc.compile(network(), options=options).save(tmp_path / "model.popx")
    model = popc_runtime.load(path, engine=engine)
    model.run_async(_zeros(model)).result()
    model.state.read()
    memory = weakref.ref(model._engine.replicas[0].program.memory)
    model.close()
    del model
    assert memory() is None


def test_results_outlive_what_made_them(tmp_path: Path) -> None:
    path = popc.compile(affine()).save(tmp_path / "model.popx")
    model = popc_runtime.load(path)
    x = np.ones((2, 3), np.float32)
    results, buffers = model.run(x=x)["y"], model.run_buffers(x=x)["y"]
    kept = results.copy()
    model.close()
    del model
    np.testing.assert_array_equal(results, kept)
    np.testing.assert_array_equal(np.asarray(buffers), kept)
