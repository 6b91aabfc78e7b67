"""Sharing tests between processes: all rows of a test's table go to the same one.

xdist hands out what has no group test by test, and counts all tests that it has handed out after
each, and looks every one up in the list of all: for twenty thousand tests that took more than a
minute, while the others waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdist.scheduler import LoadGroupScheduling

__all__ = ["TableScheduling"]


class _Numbered(list[str]):
    """Names of tests that know their numbers."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._numbers = {name: number for number, name in enumerate(names)}

    def index(self, name: str, *_: Any) -> int:
        """The number of a test."""
        return self._numbers[name]


class TableScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Groups as `xdist_group` names them; the rows of a parametrised test are one, too."""

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test."""
        group: str = super()._split_scope(nodeid)
        return group.partition("[")[0] if group == nodeid else group

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Note the tests that a process has found."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Numbered(collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test that is done, which xdist would count again and again."""
        del duration
        name = self.registered_collections[node][item_index]
        group = self._split_scope(name)
        waiting = self.assigned_work[node][group]
        del waiting[name]
        if not waiting:
            del self.assigned_work[node][group]
        self._reschedule(node)
