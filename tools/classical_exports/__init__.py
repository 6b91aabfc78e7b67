"""Exports of classical models; see `tools.classical_exports.__main__`."""
