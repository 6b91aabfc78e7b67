"""Sessions."""

from popc.popart import session as _session
from popc.popart.session import *

__all__ = _session.__all__
