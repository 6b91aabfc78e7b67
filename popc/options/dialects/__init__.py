"""Names that other tools have for popc's options."""

__all__: list[str] = []
