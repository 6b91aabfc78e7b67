"""A lock that processes share, and that a process which dies does not keep."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["file_lock", "hold", "is_free"]

# What file systems say that know no locks; who writes there has to do without.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


@contextmanager
def file_lock(
    path: str, *, wait: bool = True, on_wait: Callable[[], None] | None = None
) -> Iterator[bool]:
    """The lock of a file, which is made if it is not there.

    The system drops the lock when the process ends, however it ends.  Threads of one process
    exclude each other too.

    Args:
        path: The file; its folder must exist.
        wait: Whether to wait for another holder.
        on_wait: Called once before waiting.

    Yields True if the lock is held; False if another holds it and ``wait`` is not set.

    Raises:
        OSError: the file cannot be made or opened.
    """
    descriptor = _locked(path, wait=wait, on_wait=on_wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _unlock(descriptor)  # closing would not be enough where a child has the file open too
            os.close(descriptor)


def _locked(path: str, *, wait: bool, on_wait: Callable[[], None] | None) -> int | None:
    """A descriptor of the file that holds its lock; ``None`` if somebody else does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            if not _lock(descriptor, wait=False):
                if not wait:
                    os.close(descriptor)
                    return None
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                _lock(descriptor, wait=True)
            if _is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was removed meanwhile: others lock the one that follows it


def _is_same_file(descriptor: int, path: str) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


if sys.platform == "win32":
    import msvcrt
    from time import sleep

    def _lock(descriptor: int, *, wait: bool) -> bool:
        """Take the lock; False if it is taken and ``wait`` is not set."""
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EDEADLK):
                    raise
                if not wait:
                    return False
                sleep(0.05)
            else:
                return True

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def hold(descriptor: int) -> None:
        """Do nothing: files that are open cannot be removed."""
        del descriptor

    def is_free(path: str) -> bool:
        """True: who tries to remove it finds out."""
        del path
        return True

else:
    import fcntl

    def _lock(descriptor: int, *, wait: bool) -> bool:
        """Take the lock; False if it is taken and ``wait`` is not set."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def _unlock(descriptor: int) -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def hold(descriptor: int) -> None:
        """Lock a file that this process has made, until it is closed; see `is_free`."""
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_free(path: str) -> bool:
        """True if no process holds a file; False also where the file system knows no locks.

        Raises:
            OSError: it cannot be opened.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True
