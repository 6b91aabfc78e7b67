"""Models above 2 GB, whose weights are in a file of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from popc import popart

_ROWS, _COLUMNS, _COUNT = 16384, 7168, 5  # 448 MB each


@pytest.mark.slow
def test_external_data_above_two_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    builder = popart.Builder()
    onnx = builder.aiOnnx
    rows = [onnx.constant(np.array([number], np.int32)) for number in (3, 5, 0)]
    weights = [
        builder.addInitializedInputTensor(np.full((_ROWS, _COLUMNS), value, np.float32))
        for value in range(_COUNT)
    ]
    sums = [onnx.reducesum([onnx.slice([weight, *rows])], keepdims=0) for weight in weights]
    total = onnx.sum(sums)
    with pytest.raises(popart.popart_exception, match="saveInitializersExternally"):
        builder.getModelProto()
    builder.saveInitializersExternally(weights, "weights.bin")
    assert Path("weights.bin").stat().st_size == 4 * _ROWS * _COLUMNS * _COUNT > 1 << 31
    builder.saveModelProto("model.onnx")
    assert popart.Builder("model.onnx").getTensorShape(weights[0]) == [_ROWS, _COLUMNS]
    session = popart.InferenceSession(
        "model.onnx", popart.DataFlow(1, [total]), popart.DeviceManager().createCpuDevice()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    assert anchors[total] == 2 * _COLUMNS * sum(range(_COUNT))
