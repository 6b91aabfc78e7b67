"""Loops and branches whose bodies may not run at all, on both engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime import Executable
from popc_runtime.errors import DeviceError

_HEAD = '<ir_version: 10, opset_import: ["" : 22]>'
_ENGINES = pytest.mark.parametrize("engine", ["auto", "numpy"])

_COUNTED = """agraph (float[2] x, int64 trips) => (float[2] y) {
    y = Loop(trips, , x) <body = body (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
        t = Add(s, x)
        d = Identity(c)
    }>
}"""
_CHOICE = """agraph (float[2] x, float[0,2] none, int64 place, bool way) => (float[2] y) {
    y = If(way) <
        then_branch = then () => (float[2] a) { a = Gather(none, place) },
        else_branch = other () => (float[2] b) { b = Neg(x) }
    >
}"""


def _loaded(text: str, folder: Path, engine: str) -> Executable:
    path = folder / "model.popx"
    popc.compile(parser.parse_model(_HEAD + text)).save(path)
    return popc_runtime.load(path, engine=engine)


@_ENGINES
@pytest.mark.parametrize("trips", [-(1 << 63), -3, -1, 0, 1, 4])
def test_a_number_of_iterations_below_zero_is_none(tmp_path: Path, engine: str, trips: int) -> None:
    x = np.array([1, 2], np.float32)
    result = _loaded(_COUNTED, tmp_path, engine).run(x=x, trips=np.array(trips))
    np.testing.assert_array_equal(result["y"], x * (1 + max(trips, 0)))


@_ENGINES
def test_a_row_of_nothing_may_stand_where_nobody_takes_it(tmp_path: Path, engine: str) -> None:
    executable = _loaded(_CHOICE, tmp_path, engine)
    x, none = np.array([1, 2], np.float32), np.empty((0, 2), np.float32)
    feeds = {"x": x, "none": none, "place": np.array(0)}
    np.testing.assert_array_equal(executable.run(feeds, way=np.zeros((), bool))["y"], -x)
    with pytest.raises(DeviceError, match="Gather"):
        executable.run(feeds, way=np.ones((), bool))
