"""The least that everything else builds on, without numpy or dataclasses."""

__all__: list[str] = []
