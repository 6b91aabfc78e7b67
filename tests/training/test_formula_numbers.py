"""Initializers that converters write beside weights: which are trained, and what is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popc
from popc_runtime.format import VariableRole
from tests.replication.models import graphcore
from tests.training.small import trainable

_ROW = np.linspace(-1, 1, 4, dtype=np.float32)


def _model(nodes: str, **values: Any) -> onnx.ModelProto:
    """x [2, 4] is scaled by w [4], goes through ``nodes`` as h, and comes out as y."""
    model = graphcore(
        f"g (float[2,4] x) => (float loss) {{ h = Mul (x, w) {nodes} "
        "loss = ReduceMean <keepdims = 0> (y) }"
    )
    for name, value in {"w": _ROW, **values}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
    return model


def _trained(model: onnx.ModelProto, **weights: list[str]) -> tuple[set[str], list[str]]:
    """The names of the weights that are trained, but for w, and the notes."""
    archive = popc.compile(model, train={**trainable(), "weights": weights})
    roles = [
        variable for variable in archive.manifest.variables if variable.role is VariableRole.WEIGHT
    ]
    return {role.name for role in roles} - {"w"}, list(archive.notes)


_GELU = "a = Div (h, root) b = Erf (a) c = Add (b, one) d = Mul (h, c) y = Mul (d, half) "
_NORM = (
    "m = ReduceMean <axes = [1]> (h) c = Sub (h, m) q = Pow (c, two) "
    "v = ReduceMean <axes = [1]> (q) e = Add (v, eps) r = Sqrt (e) y = Div (c, r)"
)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
@pytest.mark.parametrize(
    ("nodes", "values"),
    [
        (_GELU, {"root": 1.4142135, "half": 0.5}),
        (_NORM, {"two": 2.0, "eps": 1e-5}),
        (_NORM, {"two": 2.0, "eps": 0.00123}),
        ("y = Mul (h, scale)", {"scale": 1 / np.sqrt(24)}),
        ("a = Mul (h, k) y = Tanh (a)", {"k": 0.7978845608}),
        ("y = Clip (h, low, high)", {"low": -1.3, "high": 1.3}),
        ("y = Max (h, low)", {"low": 0.0123}),
        ("y = Div (h, temperature)", {"temperature": 1.234}),
    ],
)
def test_constants_of_formulas_are_not_trained(
    nodes: str, values: Mapping[str, float], shape: tuple[int, ...]
) -> None:
    if "Clip" in nodes:
        shape = ()
    arrays = {name: np.full(shape, value, np.float32) for name, value in values.items()}
    if "one" in nodes:
        arrays["one"] = np.ones((), np.float32)
    trained, notes = _trained(_model(nodes, **arrays))
    assert not trained
    if shape:
        (note,) = notes
        assert note.startswith("not trained, as scalars and constants of formulas: ")
        assert all(f"{name} (float32[" in note for name in values)
    assert _trained(_model(nodes, **arrays), trainable=["w"]) == (set(), [])


@pytest.mark.parametrize(
    ("nodes", "values", "note"),
    [
        ("y = Add (h, b)", {"b": [0.3]}, "b (float32[1] = 0.3, for Add)"),
        ("y = Mul (h, alpha)", {"alpha": [0.0]}, "alpha (float32[1] = 0, for Mul)"),
        ("y = Add (h, places)", {"places": [0, 1, 2, 3]}, "places (float32[4], for Add)"),
        (
            "y = Mul (h, const_fold_opt__19)",
            {"const_fold_opt__19": [0.1, 0.2, 0.3, 0.4]},
            "const_fold_opt__19 (float32[4], for Mul)",
        ),
    ],
)
def test_what_may_be_a_constant_is_trained_and_told(
    nodes: str, values: Mapping[str, Any], note: str
) -> None:
    trained, notes = _trained(_model(nodes, **values))
    assert trained == set(values)
    assert notes[0].startswith(f"trained, but perhaps constants of a formula: {note}; [weights]")
    assert _trained(_model(nodes, **values), frozen=[*values]) == (set(), [])


@pytest.mark.parametrize(
    ("nodes", "values"),
    [
        ("y = Add (h, b)", {"b": [0.0, 0.0, 0.0, 0.0]}),
        ("y = Add (h, b)", {"b": [0.1, -2.0, 3.0, 4.0]}),
        ("a = Mul (h, s) y = Add (a, b)", {"s": [1.0] * 4, "b": [0.0] * 4}),
        ("y = MatMul (h, m)", {"m": np.eye(4)}),
        ("y = PRelu (h, slope)", {"slope": [0.25]}),
    ],
)
def test_weights_are_trained_without_a_word(nodes: str, values: Mapping[str, Any]) -> None:
    assert _trained(_model(nodes, **values)) == (set(values), [])


def test_masks_are_not_trained() -> None:
    mask = np.triu(np.full((4, 4), -1e9), 1)[:2]
    trained, notes = _trained(_model("a = Add (h, mask) y = Softmax (a)", mask=mask))
    assert not trained
    assert "mask (float32[2,4], for Add)" in notes[0]


def test_scalars_are_told_if_they_are_in_no_usual_formula() -> None:
    """CLIP's logit scale is one; the 0.5 of a GELU is not worth a line."""
    nodes = "s = Exp (logit_scale) a = Mul (h, s) y = Mul (a, half)"
    values = {"logit_scale": 2.6592, "half": 0.5}
    trained, notes = _trained(_model(nodes, **values))
    assert not trained
    (note,) = notes
    assert "logit_scale (float32[] = 2.6592, for Exp)" in note
    assert "half" not in note
    trained, notes = _trained(_model(nodes, **values), trainable=["w", "logit_scale"])
    assert (trained, notes) == ({"logit_scale"}, [])


def test_numbers_stay_variables_for_the_host() -> None:
    """Where nothing is trained, the host may write all that has dimensions."""
    model = _model("y = Mul (h, half)", half=[0.5])
    archive = popc.compile(model, options={"constant_weights": False})
    assert {variable.name for variable in archive.manifest.variables} == {"w", "half"}
    assert not archive.notes
