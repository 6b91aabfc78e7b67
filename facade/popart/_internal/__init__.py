"""Names that PopART keeps in its internal modules."""

__all__: list[str] = []
