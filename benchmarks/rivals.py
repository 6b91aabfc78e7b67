"""Other engines on the same models: what their turns of a comparison call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.subjects import Subject

__all__ = ["THREADS", "onnxruntime_turn", "openvino_turn"]

THREADS = 2


def onnxruntime_turn(subject: Subject, threads: int = THREADS) -> Callable[[], object]:
    """A run of onnxruntime's default session."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        _source(subject), options, providers=["CPUExecutionProvider"]
    )
    return partial(session.run, None, _inputs(subject))


def openvino_turn(subject: Subject, threads: int = THREADS) -> Callable[[], object] | None:
    """A run of OpenVINO for latency, in float32, with the shapes that the program has.

    None if it is not installed, or does not take the model, which is said.
    """
    if find_spec("openvino") is None:
        return None
    import openvino

    inputs = _inputs(subject)
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    try:
        model = openvino.Core().read_model(_source(subject))
        model.reshape({name: list(value.shape) for name, value in inputs.items()})
        request = openvino.compile_model(model, "CPU", settings).create_infer_request()
        request.infer(inputs)
    except RuntimeError as error:
        print(f"OpenVINO does not run {subject.name}: {str(error).strip().splitlines()[-1]}")
        return None
    return partial(request.infer, inputs, share_inputs=True)


def _source(subject: Subject) -> Any:
    return subject.model if isinstance(subject.model, bytes) else str(subject.model)


def _inputs(subject: Subject) -> dict[str, Any]:
    return subject.feeds | {name: np.asarray(value) for name, value in subject.bind.items()}
