"""Operators of ai.onnx.ml."""

__all__: list[str] = []
