"""The operators that a builder adds: tables of their methods, and the classes made of them."""

from popc.popart.opsets.native import (
    GRAPHCORE_ROWS,
    ONNX_ROWS,
    OPSETS,
    AiGraphcoreOpset1,
    AiOnnxOpset6,
    AiOnnxOpset7,
    AiOnnxOpset8,
    AiOnnxOpset9,
    AiOnnxOpset10,
    AiOnnxOpset11,
)

__all__ = [
    "GRAPHCORE_ROWS",
    "ONNX_ROWS",
    "OPSETS",
    "AiGraphcoreOpset1",
    "AiOnnxOpset6",
    "AiOnnxOpset7",
    "AiOnnxOpset8",
    "AiOnnxOpset9",
    "AiOnnxOpset10",
    "AiOnnxOpset11",
]
