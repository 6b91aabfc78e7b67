"""The process that a program runs in: threads, forks, signals, files."""

__all__: list[str] = []
