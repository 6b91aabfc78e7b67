"""An archive that trains: evaluation, the log, export of its weights, another optimizer."""

__all__: list[str] = []
