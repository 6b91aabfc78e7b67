"""PopART's native module of ai.onnx, opset 10."""

from popc.popart.opsets import AiOnnxOpset10

__all__ = ["AiOnnxOpset10"]
