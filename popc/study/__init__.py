"""A program looked at from outside: its numbers, what options do, what would help, who is right."""

__all__: list[str] = []
