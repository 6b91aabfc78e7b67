"""Weights that settings name: each is trained, or a note says that it is not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popc

_MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,4,3] x) => (float loss) {
  first = BatchNormalization (x, s1, b1, m1, v1)
  second = BatchNormalization (first, s2, b2, m2, v2)
  unread = Mul (second, aside)
  loss = ReduceMean <keepdims=0> (second)
}"""


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(_MODEL)
    names = [f"{kind}{number}" for kind in "sbmv" for number in (1, 2)]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.linspace(0.5, 2, 4, dtype=np.float32), name) for name in names
    )
    aside = np.ones((2, 4, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(aside, "aside"))
    return model


@pytest.mark.parametrize(
    ("trainable", "trained", "untrained"),
    [
        (["s1", "b2"], {"s1", "b2"}, []),
        (["s*", "m*"], {"s1", "s2"}, []),  # a pattern says what there is, not what must be
        (["s1", "m2", "aside"], {"s1"}, ["m2", "aside"]),
        (["s1", "v2"], {"s1"}, ["v2"]),
    ],
)
def test_a_note_names_what_stays(
    trainable: list[str], trained: set[str], untrained: list[str]
) -> None:
    settings = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
        "weights": {"trainable": trainable},
    }
    archive = popc.compile(_model(), train=settings)
    assert {variable.name for variable in archive.manifest.variables} == trained
    notes = [note for note in archive.notes if note.startswith("trainable names")]
    assert [note.split(", but ")[0] for note in notes] == (
        [f"trainable names {', '.join(untrained)}"] if untrained else []
    )
