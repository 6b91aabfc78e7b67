"""The builder and its opsets."""

from popc.popart import builder as _builder
from popc.popart.builder import *

__all__ = _builder.__all__
