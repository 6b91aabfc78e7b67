"""Options that are fine by themselves but not together, group by group."""

__all__: list[str] = []
