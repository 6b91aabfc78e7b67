"""Nine image networks from the onnx package, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import pytest

import popc
import popc_runtime
from popc.frontend import load_model
from popc.study.verification import compare, run_onnxruntime
from tests.zoo.light import NAMES, light_model, picture

_LARGE = ("light_bvlc_alexnet", "light_vgg19", "light_zfnet512")  # hundreds of megabytes each


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in _LARGE)) for name in NAMES],
)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    model = light_model(name)
    path = tmp_path / "light.popx"
    popc.compile(model, options={"weights": "mmap"}).save(path)
    executable = popc_runtime.load(path)
    feeds = {executable.inputs[0].name: picture()}
    results = executable.run(feeds)
    reference = run_onnxruntime(load_model(model), feeds, list(results))
    for (output, ours), theirs in zip(results.items(), reference, strict=True):
        assert theirs.std() > 1e-6, f"{output} hardly depends on anything"
        # A logit is a small difference of large sums; a probability is not.
        atol = 1e-5 if output == next(iter(results)) else 1e-4
        verdict = compare(output, ours, theirs, rtol=1e-3, atol=atol)
        assert verdict.agrees, verdict


def test_there_are_nine() -> None:
    assert len(NAMES) == 9
