"""Archives that keep a state from request to request."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import popc
from popc_runtime.errors import UsageError
from popc_runtime.serving.models import SEQUENCE_START, ArchiveModel

_SUM = """<ir_version: 10, opset_import: ["": 20]>
sum (float[2] x, float[2] s) => (float[2] y, float[2] sn) { sn = Add(x, s) y = Identity(sn) }"""


def _model(workers: int = 1) -> ArchiveModel:
    archive = popc.compile(parser.parse_model(_SUM), options={"states": {"s": "sn"}})
    model = ArchiveModel(archive.load(), workers=workers)
    model.warmup()
    return model


def test_a_request_may_begin_a_sequence() -> None:
    model = _model()
    x, start = np.ones(2, np.float32), np.array([True])
    found = [
        model.run({"x": x, **({SEQUENCE_START: flag} if flag is not None else {})}, None)["y"][0]
        for flag in (None, ~start, None, start, None)
    ]
    assert found == [1, 2, 3, 1, 2]
    assert [spec.name for spec in model.inputs] == ["x", SEQUENCE_START]
    assert model.optional == (SEQUENCE_START,)


def test_workers_do_not_share_a_sequence() -> None:
    with pytest.raises(UsageError, match=r"2 workers .* each with variables of its own"):
        _model(2).run({"x": np.ones(2, np.float32), SEQUENCE_START: np.array([True])}, None)
