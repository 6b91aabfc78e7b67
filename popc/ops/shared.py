"""Work on weights that the programs of one archive have in common, and that is done once.

Programs for other shapes of a model read the same weights, and passes make the same of them: they
transpose, scale and convert.  Within `sharing` these results are kept, by what they were made of:
a large array is known by its identity, as the model's or as an earlier result; a small one by its
content.  What reads no large array is computed by each program, since that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

import numpy as np

from popc_runtime.format import Array
from popc_runtime.format.digests import sha256

__all__ = ["content_digest", "shared", "shared_source", "sharing"]

_LARGE: Final = 1 << 16  # bytes; a longer array is not compared with others

_Result = TypeVar("_Result")


class _Memo:
    """The results that have been made of weights so far."""

    def __init__(self) -> None:
        self.results: dict[Hashable, object] = {}
        self._known: dict[int, object] = {}  # by identity, which is theirs as long as they are kept

    def know(self, source: object) -> None:
        """Keep what other programs will read too."""
        self._known[id(source)] = source

    def key(self, what: Hashable, sources: Sequence[Array | None]) -> Hashable | None:
        """The key of work on ``sources``; ``None`` for what is not shared."""
        large = [s for s in sources if s is not None and s.nbytes >= _LARGE]
        if not large or any(id(source) not in self._known for source in large):
            return None
        return what, tuple(None if s is None else self._name(s) for s in sources)

    def _name(self, source: Array) -> Hashable:
        if source.nbytes >= _LARGE:
            return id(source)
        return source.dtype.str, source.shape, source.tobytes()


_MEMO: Final[ContextVar[_Memo | None]] = ContextVar("_MEMO", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Let the programs that the block compiles share their work on weights."""
    token = _MEMO.set(_Memo())
    try:
        yield
    finally:
        _MEMO.reset(token)


def shared_source(source: object, decode: Callable[[], _Result]) -> _Result:
    """An array of the model, decoded from a message of it; the same one for all programs.

    Args:
        source: The message, by its identity.
        decode: Decodes it; the result holds an array last.
    """
    memo = _MEMO.get()
    if memo is None:
        return decode()
    key = ("source", id(source))
    if key not in memo.results:
        memo.know(source)
        memo.results[key] = _kept(memo, decode())
    return cast("_Result", memo.results[key])


def shared(
    what: Hashable, sources: Sequence[Array | None], compute: Callable[[], _Result]
) -> _Result:
    """The result of ``compute`` for ``sources``, perhaps as another program computed it.

    Args:
        what: All that decides about the result beside the sources.
        sources: The arrays that it is made of; nobody changes them.
        compute: Makes a tuple, of which arrays may be sources in turn, or anything else.
    """
    memo = _MEMO.get()
    key = None if memo is None else memo.key(what, sources)
    if memo is None or key is None:
        return compute()
    if key not in memo.results:
        memo.results[key] = _kept(memo, compute())
    return cast("_Result", memo.results[key])


def content_digest(array: Array) -> bytes:
    """A hash of the bytes of an array, in the order of its elements."""

    def digest() -> bytes:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        found: bytes = sha256(flat.data).digest()
        return found

    return shared("digest", [array], digest)


def _kept(memo: _Memo, result: _Result) -> _Result:
    if isinstance(result, tuple):
        for part in cast("tuple[Any, ...]", result):
            if isinstance(part, np.ndarray):
                memo.know(part)
    return result
