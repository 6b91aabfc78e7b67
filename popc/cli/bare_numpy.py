"""The import of numpy without what describes numpy to readers and to type checkers.

Two of its modules write docs into functions of C, as they do unless Python runs with ``-OO``; a
package makes unions of all that functions take, of which numpy itself uses a name in annotations.
Together they are two fifths of the import.  A process that belongs to popc asks for neither, and
who imports ``numpy.typing`` later gets the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from popc_runtime.ground.lazy import installed_version

__all__ = ["importing_bare_numpy"]

# Releases of which it is known that nothing else is in these modules; others are imported whole.
_KNOWN: Final = ("2.4.",)
_DESCRIBING: Final = (
    "numpy._core._add_newdocs",
    "numpy._core._add_newdocs_scalars",
    "numpy._typing",
)


class _AnyType:
    """Stands for a type in annotations, with or without parameters."""

    def __class_getitem__(cls, parameters: object) -> type[_AnyType]:
        return cls


class _Description(ModuleType):
    """Stands for a module of types."""

    NDArray = _AnyType


@contextmanager
def importing_bare_numpy() -> Iterator[None]:
    """Let numpy be imported without its descriptions, if it is imported meanwhile."""
    if "numpy" in sys.modules or not installed_version("numpy").startswith(_KNOWN):
        yield
        return
    sys.modules.update({name: _Description(name) for name in _DESCRIBING})
    try:
        yield
    finally:
        for name in _DESCRIBING:
            if isinstance(sys.modules.get(name), _Description):
                del sys.modules[name]
