"""Archives at URLs such as ``s3://bucket/model.popx``, by fsspec where it is installed.

fsspec is a door to other packages (s3fs, gcsfs, adlfs, ...), whose errors are of any class.
"""

from __future__ import annotations

import os

from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format.serialization import corrupt
from popc_runtime.ground.hints import Any
from popc_runtime.process.paths import is_url

__all__ = ["RemoteSource", "fetch", "local_path"]


def local_path(path: str) -> str:
    """The path of a local file that a URL stands for; "" if it is elsewhere; others as they are.

    Raises:
        UsageError: fsspec, or a package that it needs for this URL, is missing.
    """
    if not is_url(path):
        return path
    system, inner = _opened(path)
    protocols = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return str(inner) if "file" in protocols else ""


def fetch(url: str, folder: str) -> str:
    """Copy an archive, and its signatures if there are any, into a folder; its path there.

    Raises:
        UsageError: see `local_path`.
        ResourceError: it cannot be read.
    """
    system, path = _opened(url)
    target = os.path.join(folder, path.rpartition("/")[2] or "archive")  # noqa: PTH118 - pathlib is slow to import
    try:
        system.get_file(path, target)
        if system.exists(f"{path}.sig"):
            system.get_file(f"{path}.sig", f"{target}.sig")
    except Exception as error:
        raise _failed(url, error) from error
    return target


class RemoteSource:
    """See `BlobSource`: ranges of a file elsewhere, of which only what is asked for is fetched."""

    begins_on_a_page = False

    def __init__(self, url: str) -> None:
        """Look at it.

        Raises:
            UsageError: see `local_path`.
            ResourceError: it cannot be read.
        """
        self._url = url
        self._system, self._path = _opened(url)
        try:
            self.size = int(self._system.size(self._path))
        except Exception as error:
            raise _failed(url, error) from error

    def read(self, offset: int, count: int) -> bytes:
        """See `BlobSource`."""
        data = self._fetched(offset, offset + count) if count else b""
        if len(data) != count:
            raise corrupt(f"the file ends {count - len(data):,} bytes too early")
        return data

    def view(self) -> memoryview:
        """See `BlobSource`; all of it is fetched."""
        return memoryview(self._fetched(0, self.size))

    def unchanged(self, end: int) -> None:
        """See `BlobSource`; what was fetched is this process's own."""
        del end

    def close(self) -> None:
        """See `BlobSource`; there is nothing to release."""

    def _fetched(self, start: int, end: int) -> bytes:
        try:
            return bytes(self._system.cat_file(self._path, start=start, end=end))
        except Exception as error:
            raise _failed(self._url, error) from error


def _opened(url: str) -> tuple[Any, str]:
    """A file system, and a path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{url} is not on this machine, and fsspec is not installed",
            hint="pip install 'popc-runtime[fsspec]', and the package for the file system",
        ) from None
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"fsspec cannot open {url}: {error}", subject=url) from error
    except Exception as error:
        raise _failed(url, error) from error
    return system, str(path)


def _failed(url: str, error: Exception) -> ResourceError:
    if isinstance(error, FileNotFoundError):
        return ResourceError(f"cannot read {url}: there is no such file", subject=url)
    return ResourceError(f"cannot read {url}: {str(error) or type(error).__name__}", subject=url)
