"""PopART's Python interface, provided by popc."""

# As attributes, which programs use without an import of their own.
from popart import builder as builder
from popart import session as session
from popart import tensorinfo as tensorinfo
from popc import popart as _popart
from popc.popart import *

__all__ = _popart.__all__
__version__ = _popart.__version__
