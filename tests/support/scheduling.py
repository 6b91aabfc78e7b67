"""Sharing tests between processes: all rows of a test's table go to the same one.

xdist hands out what has no group test by test, and counts all tests that it has handed out after
each: for twenty thousand tests that took more than a minute, while the others waited.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

__all__ = ["TableScheduling"]


class TableScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Groups as `xdist_group` names them; the rows of a parametrised test are one, too."""

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test."""
        group: str = super()._split_scope(nodeid)
        return group.partition("[")[0] if group == nodeid else group
