"""Models that are packed, or written as text."""

from __future__ import annotations

import gzip
from pathlib import Path

import onnx
import pytest
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

from popc.frontend import load_model
from popc_runtime.errors import ModelError
from tests.support.models import affine

_MODEL = affine()
_BYTES = _MODEL.SerializeToString()
_JSON = json_format.MessageToJson(_MODEL).encode()
_SYNTAX = """<ir_version: 9, opset_import: ["" : 17]>
agraph (float[2,3] x) => (float[2,3] y) { y = Relu(x) }
"""


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(_BYTES, mtime=0),
        _JSON,
        text_format.MessageToString(_MODEL).encode(),
        gzip.compress(_JSON, mtime=0),
    ],
)
def test_models_are_read_in_every_form(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(data)
    assert load_model(tmp_path / "model").proto == load_model(data).proto == _MODEL


def test_the_syntax_of_onnx() -> None:
    assert load_model(_SYNTAX.encode()).proto == onnx.parser.parse_model(_SYNTAX)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(_BYTES, mtime=0)[:-9], "gzip file is damaged"),
        (b"\x1f\x8b" + bytes(99), "gzip file is damaged"),
        (b'{"irVersion": "9", "graph": ', "has a mistake"),
        (b"ir_version: 9 graph { nodes: 1 }", "has a mistake"),
        (_SYNTAX.replace("=>", "=").encode(), "has a mistake"),
        (b"<html></html>", "an HTML or XML page"),
        (b'{"a": 1}', "a text file"),
    ],
)
def test_mistakes_in_them(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(data)
