"""PopART's native module of ai.onnx, opset 7."""

from popc.popart.opsets import AiOnnxOpset7

__all__ = ["AiOnnxOpset7"]
