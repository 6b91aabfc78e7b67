"""The cycles that runs would have taken on the target."""

__all__: list[str] = []
