"""The builder and its opsets."""

from popc.popart import builder as _builder
from popc.popart.builder import *  # noqa: F403 - all of it, under this name

__all__ = _builder.__all__  # noqa: PLE0605 - the same names
