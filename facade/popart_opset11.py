"""PopART's native module of ai.onnx, opset 11."""

from popc.popart.opsets import AiOnnxOpset11

__all__ = ["AiOnnxOpset11"]
