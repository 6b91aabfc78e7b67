"""From an instruction to the record of a native kernel: a file per family, as among the kernels."""

__all__: list[str] = []
