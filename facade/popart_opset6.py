"""PopART's native module of ai.onnx, opset 6."""

from popc.popart.opsets import AiOnnxOpset6

__all__ = ["AiOnnxOpset6"]
