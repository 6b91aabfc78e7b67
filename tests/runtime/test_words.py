"""Strings given to programs, and labels that archives hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc_runtime.data.words import labelled, words_of
from popc_runtime.errors import DataDependentShapeError, DeviceError, InputMismatchError
from popc_runtime.format import DType, LabelKind, TensorSpec
from tests.support.classical import colours_model

_LABELS = ("ash", "fir tree", "oak")


@pytest.fixture(scope="module")
def archive() -> popc.Archive:
    return popc.compile(colours_model("rows"), dims={"rows": [2, 3]})


@pytest.fixture(scope="module")
def program(
    archive: popc.Archive, tmp_path_factory: pytest.TempPathFactory
) -> popc_runtime.Executable:
    return popc_runtime.load(archive.save(tmp_path_factory.mktemp("words") / "colours.popx"))


def test_labels_are_in_the_archive(archive: popc.Archive, program: popc_runtime.Executable) -> None:
    for owner in (archive.manifest, archive.manifest.variants[0], program):
        (colour,), (label, scores) = owner.inputs, owner.outputs
        assert colour.label_kind is label.label_kind is LabelKind.ELEMENTS
        assert set(colour.labels) >= {"red", "green", "blue"}
        assert (label.labels, scores.labels) == (_LABELS, _LABELS)
        assert scores.label_kind is LabelKind.COLUMNS
    assert program.manifest == archive.manifest


@pytest.mark.parametrize(
    "words",
    [
        ["green", "blue"],
        ("green", "blue"),
        [b"green", b"blue"],
        np.array(["green", "blue"]),
        np.array([b"green", b"blue"]),
        np.array(["green", b"blue"], object),
        np.array(["green", "blue", "violet"])[:2],
        ["green", "blue", "violet"],
        [b"green", b"blue", b"\xff"],
    ],
    ids=lambda words: f"{type(words).__name__}-{len(words)}",
)
def test_words_become_places(words: Any, program: popc_runtime.Executable) -> None:
    label, scores = program.run(colour=words).values()
    assert label.tolist() == [1, 2, 1][: len(words)]
    assert scores.shape == (len(words), 3)
    assert (
        labelled(program.outputs[0], label).tolist()
        == ["fir tree", "oak", "fir tree"][: len(words)]
    )


def test_words_are_counted() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
    g (string[rows, 2] x) => (int64[2] shape, int64 size) { shape = Shape(x) size = Size(x) }"""
    program = popc.load(onnx.parser.parse_model(text), dims={"rows": 3}, cache=False)
    shape, size = program.run(x=np.full((3, 2), "ash", object)).values()
    assert (shape.tolist(), size.tolist()) == ([3, 2], 6)


_WORDS = 'c = Constant<value_strings=["a", "b", "c"]>() z = Constant<value_ints=[0]>()'


@pytest.mark.parametrize(
    ("inputs", "body", "feeds"),
    [
        ("int64[1] n", "y = Slice(c, z, n)", {"n": np.array([2])}),
        (
            "float[3] x",
            "n = NonZero(x) f = Constant<value_ints=[-1]>() i = Reshape(n, f) y = Gather(c, i)",
            {"x": np.array([3, -1, 0], np.float32)},
        ),
        (
            "int64[1] n",
            "s = Slice(c, z, n) t = Slice(c, z, n) e = Equal(s, t) y = Where(e, s, t)",
            {"n": np.array([2])},
        ),
    ],
)
def test_words_whose_number_data_decides(inputs: str, body: str, feeds: dict[str, Any]) -> None:
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    text = f"{head} g ({inputs}) => (string[k] y) {{ {_WORDS} {body} }}"
    program = popc.load(onnx.parser.parse_model(text), cache=False)
    (found,) = program.run(feeds).values()
    assert labelled(program.outputs[0], found).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "looks_up",
    [
        'y = ai.onnx.ml.LabelEncoder<keys_strings=["a"], values_int64s=[7]>(s)',
        'd = Constant<value_strings=["b", "a", "c"]>() t = Slice(d, z, n) y = Equal(s, t)',
    ],
)
def test_looking_up_words_whose_number_data_decides_is_refused(looks_up: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (int64[1] n) => (y) {{ {_WORDS} s = Slice(c, z, n) {looks_up} }}"""
    with pytest.raises(DataDependentShapeError, match="number data decides can only be moved"):
        popc.compile(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    "value",
    [["green", 1], [["green"], ["blue", "red"]], np.array(["a", None], object), [], 3, None],
)
def test_other_things_are_no_words(value: Any, program: popc_runtime.Executable) -> None:
    assert words_of(value) is None
    with pytest.raises(InputMismatchError):
        program.run(colour=value)


def test_what_moves_memory_refuses_words(program: popc_runtime.Executable) -> None:
    two = program.programs[0]
    words = np.array(["green", "blue"])
    with pytest.raises(InputMismatchError) as caught:
        two.run_buffers(colour=words)
    assert "only `run` takes words" in caught.value.hint
    taken: list[Any] = []
    with two.session() as session:
        session.connect("colour", iter([words])).connect("label", taken).connect("scores", taken)
        with pytest.raises(InputMismatchError) as caught:
            session.step()
    assert "only `run` takes words" in caught.value.hint
    results = two.run_buffers(colour=np.array([1, 2]))
    assert np.asarray(results["label"]).tolist() == [1, 2]


def test_places_outside_have_no_label() -> None:
    spec = TensorSpec("y", DType.INT64, (2,), ("a", "b"), LabelKind.ELEMENTS)
    assert labelled(spec, np.array([[1], [0]])).tolist() == [["b"], ["a"]]
    for place in (-1, 2):
        with pytest.raises(DeviceError, match="no places of its 2 labels"):
            labelled(spec, np.array([0, place]))
