"""Operators of ai.onnx."""

__all__: list[str] = []
