"""Variables from run to run, as the host reads, writes and keeps them."""

__all__: list[str] = []
