"""Inputs and results: arrays, plain memory, ports and streams."""

__all__: list[str] = []
