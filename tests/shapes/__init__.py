"""Archives of several shapes."""
