"""Large weights stay in the bytes of the model's file: the model is the same."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.frontend import LoadedModel, import_model, kept_weights, load_model
from popc.frontend.external import hold
from popc_runtime.errors import ModelError, PopcError
from popc_runtime.format import Array

_RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "_LARGE_FILE", 100)
    monkeypatch.setattr(kept_weights, "_LARGE_WEIGHT", 64)


def _weights() -> dict[str, Array]:
    return {
        "w": _RNG.standard_normal((5, 7)).astype(np.float32),
        "small": _RNG.standard_normal(7).astype(np.float32),
        "halves": _RNG.standard_normal((7, 7)).astype(np.float16),
        "flags": _RNG.random((7, 11)) < 0.5,
        "counts": _RNG.integers(-9, 9, 77),
    }


def _model(weights: dict[str, Array]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "small"], ["y"]),
        *(helper.make_node("Identity", [name], [f"{name}_"]) for name in weights),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", *(f"{n}_" for n in weights))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], outputs, tensors, doc_string="about " * 30)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, producer_name="me")


def _arrays(model: LoadedModel) -> dict[str, Array]:
    tensors = import_model(model).graph.tensors.values()
    return {tensor.name: tensor.data for tensor in tensors if tensor.data is not None}


def _saved(folder: Path, data: bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(data)
    return path


def test_large_weights_are_views_of_the_file(tmp_path: Path) -> None:
    weights = _weights()
    path = _saved(tmp_path, _model(weights).SerializeToString())
    kept, whole = load_model(path, keeps_weights=True), load_model(path)
    assert kept.kept is not None
    assert whole.kept is None
    assert kept.sha256 == whole.sha256
    found = _arrays(kept)
    path.write_bytes(bytes(path.stat().st_size))  # what has been read stays
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name].view(array.dtype), array)
    for name in ("w", "halves", "counts"):
        assert np.shares_memory(found[name], kept.kept), name
        assert not found[name].flags.writeable
    assert not np.shares_memory(found["small"], kept.kept)
    assert kept.external_files() == {}


def test_tensors_that_were_in_other_files_before(tmp_path: Path) -> None:
    """The package onnx, having read a tensor's own file, writes behind its data: not elsewhere."""
    weights = _weights()
    path = _saved(tmp_path, _model(weights).SerializeToString())
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w", size_threshold=0)
    joined = onnx.load(path)
    assert all(tensor.HasField("data_location") for tensor in joined.graph.initializer)
    kept = load_model(_saved(tmp_path, joined.SerializeToString()), keeps_weights=True)
    assert kept.kept is not None
    found = _arrays(kept)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name].view(array.dtype), array)


def test_archives_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path, _model(_weights()).SerializeToString())
    kept = popc.compile(path).to_bytes()
    monkeypatch.setattr(kept_weights, "_LARGE_FILE", 1 << 20)
    assert load_model(path, keeps_weights=True).kept is None
    assert popc.compile(path).to_bytes() == kept


def test_a_link_to_a_model_elsewhere_is_as_good(tmp_path: Path) -> None:
    weights = _weights()
    (tmp_path / "elsewhere").mkdir()
    path = _saved(tmp_path / "elsewhere", _model(weights).SerializeToString())
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    model = load_model(link, keeps_weights=True)
    assert model.kept is not None
    assert model.external_files() == {}
    np.testing.assert_array_equal(_arrays(model)["w"], weights["w"])


@pytest.mark.parametrize("how", ["packed", "text", "another field first"])
def test_unusual_files_are_read_as_a_whole(tmp_path: Path, how: str) -> None:
    weights = _weights()
    model = _model(weights)
    data = model.SerializeToString()
    if how == "packed":
        data = gzip.compress(data)
    elif how == "text":
        data = str(model).encode()
    else:
        later = onnx.ModelProto(producer_name="me").SerializeToString()
        model.ClearField("producer_name")
        data = later + model.SerializeToString()
    loaded = load_model(_saved(tmp_path, data), keeps_weights=True)
    assert loaded.kept is None
    np.testing.assert_array_equal(_arrays(loaded)["w"], weights["w"])


def test_pieces_of_a_model_are_put_together(tmp_path: Path) -> None:
    # Protobuf: messages one after another are one message.
    weights = _weights()
    model = _model(weights)
    rest = onnx.ModelProto()
    rest.graph.initializer.extend([model.graph.initializer.pop()])
    data = model.SerializeToString() + rest.SerializeToString()
    loaded = load_model(_saved(tmp_path, data), keeps_weights=True)
    assert loaded.kept is not None
    for name, array in _arrays(loaded).items():
        np.testing.assert_array_equal(array.view(weights[name].dtype), weights[name])


def test_weights_of_the_wrong_size_are_refused(tmp_path: Path) -> None:
    model = _model(_weights())
    model.graph.initializer[0].dims[0] = 6
    path = _saved(tmp_path, model.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor 'w' of shape .* needs 168 bytes, but .* 140"):
        import_model(load_model(path, keeps_weights=True))


def test_damaged_files_are_what_they_are_when_read_as_a_whole(tmp_path: Path) -> None:
    data = _model(_weights()).SerializeToString()
    rng = random.Random(0)
    kept = 0
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del changed[rng.randrange(len(data)) :]
        path = _saved(tmp_path, bytes(changed))
        ours, theirs = (_outcome(path, keeps_weights=keeps) for keeps in (True, False))
        kept += not isinstance(ours, str)
        assert ours == theirs
    assert kept > 100


def _outcome(path: Path, *, keeps_weights: bool) -> str | dict[str, bytes]:
    try:
        arrays = _arrays(load_model(path, keeps_weights=keeps_weights))
    except PopcError as error:
        return error.message.replace("its external data has", "has")
    return {name: array.tobytes() for name, array in arrays.items()}


def test_a_model_cannot_name_what_another_one_holds(tmp_path: Path) -> None:
    content = np.zeros(1000, np.uint8)
    (name,) = hold(content).values()
    assert len(name) == 32  # digits, which nobody guesses
    model = _model(_weights())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "popc_held": "0" * 32}.items():
        tensor.external_data.add(key=key, value=value)
    values = np.arange(35, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    path = _saved(tmp_path, model.SerializeToString())
    for keeps_weights in (True, False):
        loaded = load_model(path, keeps_weights=keeps_weights)
        np.testing.assert_array_equal(_arrays(loaded)["w"].reshape(-1), values)
        assert list(loaded.external_files()) == ["w.bin"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(PopcError, match="pipe or a device"):
        load_model(tmp_path / "m.onnx", keeps_weights=True)
