"""The settings of a model's inputs: how they are transferred, and their shapes."""

from __future__ import annotations

from typing import Any

from popc.popart.calls import constructed, native
from popc.popart.enums import ExchangeStrategy, ReplicatedStreamMode, TileSet
from popc.popart.errors import popart_exception
from popc.popart.tensorinfo import _TensorInfoCore

__all__ = ["InputSettings", "InputShapeInfo"]


class InputSettings:
    """The settings for transferring an input.

    Forms: ``(tileSet=Compute, exchangeStrategy=JustInTime)``, ``(replicatedStreamMode)``, whose
    keyword may also be spelled ``relicatedStreamMode``, as in PopART.
    """

    __slots__ = ("_mode", "_strategy", "_tiles")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tiles = TileSet.Compute
        self._strategy = ExchangeStrategy.JustInTime
        self._mode = ReplicatedStreamMode.Replicate
        forms = (InputSettings._of_tiles, InputSettings._of_mode, InputSettings._of_spelling)
        constructed(self, forms, args, kwargs)

    def _of_tiles(
        self,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None:
        self._tiles, self._strategy = tileSet, exchangeStrategy

    def _of_mode(self, replicatedStreamMode: ReplicatedStreamMode) -> None:
        self._mode = replicatedStreamMode

    def _of_spelling(self, relicatedStreamMode: ReplicatedStreamMode) -> None:
        self._mode = relicatedStreamMode

    def tileSet(self) -> TileSet:
        """The tiles that receive it."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """The time when it is transferred."""
        return self._strategy

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """True if replicas get different data."""
        return self._mode


class InputShapeInfo:
    """Types of inputs that a model leaves open, by name."""

    __slots__ = ("_infos",)

    def __init__(self) -> None:
        self._infos: dict[str, _TensorInfoCore] = {}

    @native
    def add(self, id: str, tensorInfo: _TensorInfoCore, /) -> None:  # noqa: A002
        """Give an input a type; an earlier one is replaced."""
        self._infos[id] = tensorInfo

    @native
    def get(self, id: str, /) -> _TensorInfoCore:  # noqa: A002
        """The type of an input.

        Raises:
            popart_exception: it has been given none.
        """
        if id not in self._infos:
            raise popart_exception(f"No input shape info for Tensor {id}")
        return self._infos[id]

    @native
    def has(self, id: str, /) -> bool:  # noqa: A002
        """True if an input has been given a type."""
        return id in self._infos

    def names(self) -> list[str]:
        """The inputs that have been given types."""
        return list(self._infos)
