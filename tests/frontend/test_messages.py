"""The messages of ONNX are those of the package, whatever of protobuf is imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FIRST = """
import sys
from popc.frontend import messages
print("google.protobuf.internal.python_message" in sys.modules)
"""
_THEN = """
import onnx
from google.protobuf import json_format, text_format
from google.protobuf.internal import python_message
assert onnx.ModelProto is messages.ModelProto
assert python_message.GeneratedProtocolMessageType.__module__ == python_message.__name__
model = onnx.ModelProto(ir_version=8)
assert text_format.MessageToString(model).strip() == "ir_version: 8"
assert json_format.MessageToDict(model) == {"irVersion": "8"}
assert messages.ModelProto.FromString(model.SerializeToString()) == model
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_all_of_protobuf_is_there_for_who_asks(
    implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", implementation)
    command = [sys.executable, "-c", _FIRST + _THEN]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert implementation == "upb" or done.stdout.strip() == "True"
