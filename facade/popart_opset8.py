"""PopART's native module of ai.onnx, opset 8."""

from popc.popart.opsets import AiOnnxOpset8

__all__ = ["AiOnnxOpset8"]
