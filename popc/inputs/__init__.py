"""Inputs as users write them: ``NAME=VALUE`` arguments, arrays in files, random numbers."""

__all__: list[str] = []
