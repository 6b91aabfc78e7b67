"""The tensors that a session returns, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.popart.calls import constructed, native
from popc.popart.enums import AnchorReturnTypeId, ExchangeStrategy, TileSet
from popc.popart.errors import popart_exception

__all__ = ["AnchorReturnType", "DataFlow"]

_IDS: Final = {
    "ALL": AnchorReturnTypeId.All,
    "EVERYN": AnchorReturnTypeId.EveryN,
    "FINAL": AnchorReturnTypeId.Final,
    "SUM": AnchorReturnTypeId.Sum,
}


class AnchorReturnType:
    """The part of a tensor that is returned: "All", "Final", "Sum", or "EveryN" with a period.

    Forms: ``(anchorReturnTypeString, tileSet=..., exchangeStrategy=...)``, the same with
    ``returnPeriod`` in second place.

    Raises:
        popart_exception: there is no such type, or its period is missing, not positive or too much.
    """

    __slots__ = ("_id", "_period", "_strategy", "_tiles")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._id = AnchorReturnTypeId.All
        self._period: int | None = None
        self._tiles = TileSet.Compute
        self._strategy = ExchangeStrategy.JustInTime
        forms = (AnchorReturnType._of_text, AnchorReturnType._of_period)
        constructed(self, forms, args, kwargs)

    def _of_text(
        self,
        anchorReturnTypeString: str,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None:
        self._id = _id_of(anchorReturnTypeString)
        if self._id is AnchorReturnTypeId.EveryN:
            raise popart_exception("Must specify return period with option 'EVERYN'")
        self._tiles, self._strategy = tileSet, exchangeStrategy

    def _of_period(
        self,
        anchorReturnTypeString: str,
        returnPeriod: int,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None:
        self._id = _id_of(anchorReturnTypeString)
        if self._id is not AnchorReturnTypeId.EveryN:
            raise popart_exception(
                "A return period should not be supplied for this anchor return type"
            )
        if returnPeriod <= 0:
            raise popart_exception("Anchor return period must be greater than zero")
        self._period, self._tiles, self._strategy = returnPeriod, tileSet, exchangeStrategy

    def id(self) -> AnchorReturnTypeId:
        """The kind."""
        return self._id

    def rp(self) -> int:
        """The period.

        Raises:
            popart_exception: it has none.
        """
        if self._period is None:
            raise popart_exception("A return period should not be supplied for this anchor type")
        return self._period

    def tileSet(self) -> TileSet:
        """The tiles that send it."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """The time when it is transferred."""
        return self._strategy


def _require_period(period: int, batches: int) -> None:
    if period > batches:
        raise popart_exception(
            "Return period must be <= to the number of batches per step: "
            f"it is {period} of {batches}"
        )
    if batches % period:
        raise popart_exception(
            "Return period must be a factor of the number of batches per step: "
            f"it is {period} of {batches}"
        )


def _id_of(text: str) -> AnchorReturnTypeId:
    found = _IDS.get(text.upper())
    if found is None:
        raise popart_exception(f"Invalid anchor return type ID supplied: {text}")
    return found


class DataFlow:
    """Batches per step, and the tensors that are returned.

    Forms: ``(batchesPerStep, anchorTensors)`` with a dict from name to `AnchorReturnType`,
    ``(batchesPerStep, anchorIds, anchorReturnType=AnchorReturnType("All"))``.

    Raises:
        popart_exception: batches per step are not positive, or not divisible by a period.
    """

    __slots__ = ("_anchors", "_batches")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._batches = 0
        self._anchors: dict[str, AnchorReturnType] = {}
        constructed(self, (DataFlow._empty, DataFlow._of_dict, DataFlow._of_list), args, kwargs)

    def _empty(self) -> None:
        """No batches, no tensors."""

    def _of_dict(self, batchesPerStep: int, anchorTensors: dict[str, AnchorReturnType]) -> None:
        self._batches = batchesPerStep
        self._anchors = dict(sorted(anchorTensors.items()))
        if batchesPerStep <= 0:
            raise popart_exception("'Batches per step' must be greater than zero")
        for kind in self._anchors.values():
            if kind.id() is AnchorReturnTypeId.EveryN:
                _require_period(kind.rp(), batchesPerStep)

    def _of_list(
        self,
        batchesPerStep: int,
        anchorIds: Sequence[str],
        anchorReturnType: AnchorReturnType | None = None,
    ) -> None:
        kind = anchorReturnType or AnchorReturnType("All")
        self._of_dict(batchesPerStep, dict.fromkeys(anchorIds, kind))

    @native
    def isAnchored(self, id: str, /) -> bool:  # noqa: A002
        """True if a tensor is returned."""
        return id in self._anchors

    def nAnchors(self) -> int:
        """The number of tensors that are returned."""
        return len(self._anchors)

    def batchesPerStep(self) -> int:
        """Batches per step."""
        return self._batches

    def anchors(self) -> list[str]:
        """The tensors that are returned, sorted."""
        return list(self._anchors)

    @native
    def art(self, id: str, /) -> AnchorReturnType:  # noqa: A002
        """The part of a tensor that is returned.

        Raises:
            popart_exception: none of it.
        """
        if id not in self._anchors:
            raise popart_exception(f"Tensor {id} is not an anchor")
        return self._anchors[id]

    @native
    def setBatchesPerStep(self, batchesPerStep: int, /) -> None:
        """Change the batches per step; nothing is checked."""
        self._batches = batchesPerStep
