"""Names that other tools have for popc's options."""
