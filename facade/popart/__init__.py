"""PopART's Python interface, provided by popc."""

from popc import popart as _popart
from popc.popart import *

__all__ = _popart.__all__
__version__ = _popart.__version__
