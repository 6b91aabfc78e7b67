"""The source that an executable was loaded from, so that a copy can be."""

from __future__ import annotations

from collections.abc import Callable

from popc_runtime.errors import ResourceError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any

__all__ = ["Recipe"]


@frozen
class Recipe:
    """A recipe that can be pickled.

    Attributes:
        loader: `popc_runtime.load`.
        path: The absolute path of the archive; "" if it was in memory.
        digest: Of the archive.
        settings: The keyword arguments of `load`.
        program: Of several, the one that was chosen; "" if none was.
    """

    loader: Callable[..., Any]
    path: str
    digest: bytes
    settings: dict[str, Any]
    program: str = ""

    def load(self) -> Any:
        """Another executable of the same archive.

        Raises:
            ResourceError: another archive is there now.
            ArchiveError, DeviceError: see `popc_runtime.load`.
        """
        made = self.loader(self.path, **self.settings)
        if made.recipe.digest != self.digest:
            raise ResourceError(
                f"{self.path} is not the archive any more that the copy was loaded from",
                subject=self.path,
                hint="keep an archive in its place as long as copies of its executables are made",
            )
        return made.program(self.program) if self.program else made
