"""Imports of packages without modules of theirs that they import and do not use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from popc_runtime.ground.lazy import installed_version

__all__ = ["omitting"]


@contextmanager
def omitting(
    package: str,
    distribution: str,
    known: Sequence[str],
    omitted: Sequence[str],
    **names: object,
) -> Iterator[None]:
    """Let what is imported meanwhile do without modules, which who imports them later gets.

    Args:
        package: What imports them; nothing is omitted if it is there already.
        distribution: What it is installed by.
        known: The beginnings of versions of which it is known that they use nothing of these but
            ``names``; of others nothing is omitted.
        omitted: The modules.
        **names: Attributes of what stands for them.
    """
    if package in sys.modules or not installed_version(distribution).startswith(tuple(known)):
        yield
        return
    standing = {name: ModuleType(name) for name in omitted if name not in sys.modules}
    for module in standing.values():
        vars(module).update(names)
    sys.modules.update(standing)
    try:
        yield
    finally:
        for name, module in standing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
