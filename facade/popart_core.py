"""PopART's native module: the public names, and those that begin with an underscore."""

from popc.popart import *
from popc.popart.builder_core import _BuilderCore
from popc.popart.errors import HOOKS
from popc.popart.tensorinfo import _TensorInfoCore

__all__ = ["_BuilderCore", "_TensorInfoCore", *HOOKS]  # noqa: PLE0604 - functions by name

globals().update(HOOKS)
