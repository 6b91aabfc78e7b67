"""PopART's Python interface, provided by popc."""

from popc import popart as _popart
from popc.popart import *  # noqa: F403 - all of it, under this name

__all__ = _popart.__all__  # noqa: PLE0605 - the same names
__version__ = _popart.__version__
