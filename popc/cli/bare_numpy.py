"""The import of numpy without what describes numpy to readers and to type checkers.

Two of its modules write docs into functions of C, as they do unless Python runs with ``-OO``; a
package makes unions of all that functions take, of which numpy itself uses a name in annotations.
Together they are two fifths of the import.  A process that belongs to popc asks for neither, and
who imports ``numpy.typing`` later gets the real one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from popc_runtime.ground.omitted import omitting

__all__ = ["importing_bare_numpy"]

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


def importing_bare_numpy() -> AbstractContextManager[None]:
    """Let numpy be imported without its descriptions, if it is imported meanwhile."""
    return omitting("numpy", "numpy", _KNOWN, _DESCRIBING, NDArray=_AnyType)
