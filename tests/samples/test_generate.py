"""The sample that generates tokens, on its own model."""

from __future__ import annotations

import sys

import pytest

from samples import generate


def test_both_generate_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = generate.small_llama(generate.Sizes(words=64, layers=1))
    monkeypatch.setattr(generate, "small_llama", lambda: model)
    monkeypatch.setattr(sys, "argv", ["generate.py", "--tokens", "4", "--prompt", "3"])
    assert generate.main() == 0
    printed = capsys.readouterr().out
    assert [line.partition(":")[0] for line in printed.splitlines()][:2] == ["popc", "onnxruntime"]
    assert "the tokens are the same" in printed
