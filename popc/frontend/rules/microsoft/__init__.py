"""Operators of com.microsoft."""

__all__: list[str] = []
