"""Options by topic: each file has its options, and what does not go together with them."""

__all__: list[str] = []
