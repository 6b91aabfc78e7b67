"""Forked children, which have none of their parent's threads but the one that has forked."""

from __future__ import annotations

import os
from _weakrefset import WeakSet  # all of `weakref` that is needed

from popc_runtime.ground.hints import Any, Final, Protocol

__all__ = ["forget_in_children", "free", "free_in_children"]


class Forgetful(Protocol):
    """An object that knows threads."""

    def forget_threads(self) -> None:
        """Go on without those that the child does not have."""


_forgetful: Final[WeakSet[Any]] = WeakSet()
_locks: Final[WeakSet[Any]] = WeakSet()


def forget_in_children(knower: Forgetful) -> None:
    """Call its ``forget_threads`` in children, as long as it lives."""
    _forgetful.add(knower)


def free_in_children(lock: Any) -> None:
    """Let children take a lock that another thread than the forking one has."""
    _locks.add(lock)


def free(lock: Any) -> bool:
    """In a child: take ``lock`` from a thread that did not survive the fork; true if one holds it.

    What the forking thread holds, it still holds.
    """
    if lock.acquire(blocking=False):
        lock.release()
        return False
    lock._at_fork_reinit()  # noqa: SLF001 - what the standard library does with its own
    return True


def _forget_threads() -> None:
    for lock in _locks:
        free(lock)
    for knower in _forgetful:
        knower.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
