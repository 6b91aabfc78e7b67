"""The settings of a user that concern costs."""

from __future__ import annotations

from fnmatch import fnmatchcase

from popc.ir import OpSettings
from popc.options import CopyingStrategy, Partials
from popc_runtime.ground.frozen import frozen

__all__ = ["CostSettings"]


@frozen
class CostSettings:
    """The settings for planning convolutions and matrix products.

    Attributes:
        proportion: How much of a tile's memory the temporary data of one of them may take.
        proportions: The same for ops whose name matches a pattern; the first that does counts.
        by_op_type: The same for ops of a type, and ``by_chip`` for those of a chip, by number.
        partials_type_matmuls: Of matrix products in half precision inside of
            other ops, such as attention.  Products of their own have an attribute for it.
        prefetch: Whether the host has samples ready before they are asked for.
        merge_exchange: Whether transfers in a row share their syncs.
        merge_exchange_bytes: How many bytes transfers that share syncs have; 0: any number.
        merge_copies_bytes: How many bytes copies between chips that share a sync have; 0: none do.
        copying_strategy: When calls copy operands and results: see `popc.cost.calls`.
        outlines: Whether equal updates of weights share their code, transfers included.
    """

    proportion: float = 0.6
    proportions: tuple[tuple[str, float], ...] = ()
    by_op_type: tuple[tuple[str, float], ...] = ()
    by_chip: tuple[float, ...] = ()
    partials_type_matmuls: Partials = Partials.FLOAT
    prefetch: bool = True
    merge_exchange: bool = True
    merge_exchange_bytes: int = 0
    merge_copies_bytes: int = 0
    copying_strategy: CopyingStrategy = CopyingStrategy.ON_ENTER_AND_EXIT
    outlines: bool = False

    def proportion_of(self, settings: OpSettings, op_type: str, chip: int) -> float:
        """The proportion for an op with these settings, of that type, on that chip."""
        for pattern, proportion in self.proportions:
            if fnmatchcase(settings.origin, pattern):
                return proportion
        if settings.available_memory is not None:
            return settings.available_memory
        of_type = dict(self.by_op_type).get(op_type)
        if of_type is not None:
            return of_type
        return self.by_chip[chip] if chip < len(self.by_chip) else self.proportion
