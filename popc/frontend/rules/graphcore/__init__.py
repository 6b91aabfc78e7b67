"""Operators of ai.graphcore, PopART's and TensorFlow's."""

__all__: list[str] = []
