"""PopART's native module of ai.onnx, opset 9."""

from popc.popart.opsets import AiOnnxOpset9

__all__ = ["AiOnnxOpset9"]
