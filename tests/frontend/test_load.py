from __future__ import annotations

import hashlib
import pickle
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import popc
from popc.frontend import (
    Bindings,
    describe_model,
    expose_tensors,
    find_unsupported,
    import_model,
    load_model,
)
from popc_runtime.errors import ModelError, PopcError, ResourceError
from popc_runtime.format import MAGIC
from tests.support.oracles import run_onnxruntime

_MODEL = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "me", producer_version: "2">
small (float[N, 3] x) => (float[N, 3] y) {
    h = Relu (x)
    [last] y = Neg (h)
}
"""


def _model(text: str = _MODEL) -> onnx.ModelProto:
    return parser.parse_model(text)


def test_a_path_bytes_and_a_message_are_the_same_model(tmp_path: Path) -> None:
    data = _model().SerializeToString(deterministic=True)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    loaded = [load_model(source) for source in (path, str(path), data, _model())]
    assert {item.sha256 for item in loaded} == {hashlib.sha256(data).hexdigest()}
    assert [item.base_dir for item in loaded] == [str(tmp_path), str(tmp_path), "", ""]
    assert all(item.proto == _model() for item in loaded)


def test_what_a_loaded_model_knows() -> None:
    loaded = load_model(_model())
    assert loaded.tensor_names() == ("h", "y")
    assert loaded.producer_of("y") == "last"
    assert loaded.producer_of("h") == "Relu(h)"
    assert loaded.producer_of("x") == ""
    assert loaded.provenance == {
        "graph": "small",
        "ir_version": "8",
        "opsets": "ai.onnx 17",
        "producer": "me 2",
    }
    inputs = loaded.as_inputs({"x": np.zeros((1, 3)), "other": np.zeros(1)})
    assert {name: array.dtype for name, array in inputs.items()} == {"x": np.float32}


def _header(start: bytes) -> bytes:
    return start + bytes(range(256))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "it is empty"),
        (_header(MAGIC), "it is a popc archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        (_header(b"PK\x03\x04"), "a zip archive"),
        (_header(b"\x89HDF\r\n"), "an HDF5 file"),
        (pickle.dumps({"a": 1}), "a Python pickle"),
        (_header(b"\x1c\0\0\0TFL3"), "a TensorFlow Lite file"),
        (_header(b"\x18\0\0\0ORTM"), "onnxruntime's own format"),
        (b"<!DOCTYPE html><html></html>", "an HTML or XML page"),
        (b'{"not": "a model"}\n', "it is a text file"),
        (b"hello", "it is a text file"),
        (np.random.default_rng(0).bytes(4096), "cannot be parsed"),
        (_model().SerializeToString()[:-7], "damaged or truncated"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "damaged or truncated"),
    ],
)
def test_what_is_not_an_onnx_model_is_recognised(data: bytes, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        load_model(data)


def test_every_truncation_is_refused_in_words() -> None:
    data = _model().SerializeToString()
    for length in range(len(data)):
        try:
            assert load_model(data[:length]).notes  # all but the opset is there
        except ModelError as error:
            assert error.message  # noqa: PT017 - both may be


def test_damage_never_escapes_as_another_exception() -> None:
    data = bytearray(_model().SerializeToString())
    generator = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(data)
        for position in generator.integers(0, len(data), 3):
            damaged[position] = generator.integers(0, 256)
        with suppress(PopcError):
            loaded = load_model(bytes(damaged))
            describe_model(loaded)
            find_unsupported(loaded)
            import_model(loaded, Bindings(dims={"N": 2}))


def test_folders_and_missing_files(tmp_path: Path) -> None:
    onnx.save(_model(), tmp_path / "inner.onnx")
    assert load_model(tmp_path).file == "inner.onnx"
    onnx.save(_model(), tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="is a folder with 2 models") as caught:
        load_model(tmp_path)
    assert "inner.onnx, other.onnx" in caught.value.hint
    onnx.save(_model(), tmp_path / "model.onnx")
    assert load_model(tmp_path).file == "model.onnx"
    with pytest.raises(ResourceError, match="No such file"):
        load_model(tmp_path / "missing.onnx")


@pytest.mark.parametrize(
    ("ir_version", "opset", "message"),
    [
        (2, 17, "IR version 2; versions 3 to"),
        (1000, 17, "IR version 1000"),
        (8, 27, "uses opset 27 of ai.onnx; opsets 1 to 26"),
        (8, 0, "uses opset 0"),
    ],
)
def test_versions(ir_version: int, opset: int, message: str) -> None:
    model = _model()
    model.ir_version = ir_version
    model.opset_import[0].version = opset
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert caught.value.hint or opset == 0


@pytest.mark.parametrize("ir_version", [3, 4, onnx.IR_VERSION])
@pytest.mark.parametrize("opset", [1, 6, 26])
def test_supported_versions(ir_version: int, opset: int) -> None:
    model = _model()
    model.ir_version = ir_version
    model.opset_import[0].version = opset
    assert load_model(model).opsets == {"": opset}


def test_functions_must_not_be_too_new_either() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[2] x) => (float[2] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 99]> f (a) => (b) { b = Relu (a) }
    """)
    with pytest.raises(ModelError, match="function 'f' uses opset 99"):
        load_model(model)


@pytest.mark.parametrize("name", ["g", "x", "first", "Relu", "second", "y", "shape", "Reshape"])
def test_names_must_be_text(name: str) -> None:
    """Of graphs, values, nodes, types, attributes and weights; of nodes with attributes and not."""
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) <int64[1] shape = {2}> {
            first = Relu (x)
            y = Reshape <allowzero = 0> (first, shape)
        }
    """)
    model.graph.node[1].name = "second"
    data, damaged = model.SerializeToString(), b"\xff" + name.encode()[1:]
    with pytest.raises(ModelError, match="is not valid UTF-8"):
        load_model(data.replace(bytes([len(name)]) + name.encode(), bytes([len(name)]) + damaged))


def test_an_opset_that_is_not_stated_is_assumed() -> None:
    model = _model()
    model.ir_version = 8
    del model.opset_import[:]
    loaded = load_model(model)
    assert not model.opset_import
    assert loaded.opsets == {"": 18}  # of ONNX 1.13, the last release of IR version 8
    (note,) = popc.compile(model, dims={"N": 2}).notes
    assert "18 is assumed, the newest of IR version 8" in note


@pytest.mark.parametrize(
    ("declared", "note"),
    [
        ("float[N, 3] y", ""),
        ("float[7, 3] y", "declares output 'y' as float32[7,3], but computes float32[2,3]"),
        ("float[N] y", "declares output 'y' as float32[N], but computes float32[2,3]"),
        ("int64[N, 3] y", "declares output 'y' as int64[N,3], but computes float32[2,3]"),
        ("y", ""),
    ],
)
def test_outputs_that_are_declared_wrongly_are_noticed(declared: str, note: str) -> None:
    text = f'<ir_version: 9, opset_import: ["": 17]> g (float[N, 3] x) => ({declared})'
    model = onnx.parser.parse_model(text + "{ y = Relu (x) }")
    notes = popc.compile(model, dims={"N": 2}).notes
    assert note in " ".join(notes)
    assert bool(note) == bool(notes)


def test_peak_memory_stays_below_three_times_the_file(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((1 << 21,), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["w"], ["y"])],
        "g",
        [],
        [onnx.ValueInfoProto(name="y")],
        [weight],
    )
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    path.write_bytes(model.SerializeToString())
    del model, graph, weight
    size = path.stat().st_size
    tracemalloc.start()
    loaded = load_model(path)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # What protobuf holds is outside of Python's allocator: about one file more.
    assert loaded.proto.graph.initializer
    assert held < size / 10
    assert peak < 1.5 * size


def test_expose_tensors_makes_them_the_only_outputs() -> None:
    exposed = onnx.load_from_string(expose_tensors(load_model(_model()), ["h"]))
    assert [info.name for info in exposed.graph.output] == ["h"]
    (h,) = run_onnxruntime(exposed, {"x": np.array([[-1, 0, 2]], np.float32)})
    assert h.tolist() == [[0, 0, 2]]
