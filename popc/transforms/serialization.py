"""Passes that cut ops into parts that run one after the other, as settings of the ops say."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

from popc.ir import Graph, Op
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import inheritable

__all__ = ["SerializationPass", "parts_of", "too_few_parts"]


def parts_of(size: int, factor: int) -> tuple[int, ...] | None:
    """The sizes of ``factor`` parts, of which the last may be smaller; ``None``: there are fewer.

    parts_of(7, 3) is (3, 3, 1); there are no 5 such parts of 6.
    """
    each = -(-size // factor)
    last = size - each * (factor - 1)
    return (*(each for _ in range(factor - 1)), last) if last > 0 else None


def too_few_parts(size: int, factor: int) -> str:
    """The reason why `parts_of` has none, as what follows the name of what is cut.

    too_few_parts(6, 5) is "6 make 3 parts of 2, not 5".
    """
    each = max(1, -(-size // factor))
    return f"{size} make {-(-size // each)} parts of {each}, not {factor}"


@inheritable
class SerializationPass(RewritePass):
    """A pass that refuses all settings that cannot be followed before it cuts anything.

    Attributes:
        refusal: The message of that error.
    """

    optional: ClassVar[bool] = False
    refusal: ClassVar[str]
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.enable_serialized_matmuls)

    def run(self, graph: Graph) -> int:
        """Check all annotations first."""
        if not self.enabled:
            return 0
        ops = (op for nested in graph.walk() for op in nested.ops if op.settings.cut is not None)
        problems = tuple(filter(None, map(self.problem, ops)))
        if problems:
            raise OptionError(self.refusal, details=problems)
        return super().run(graph)

    @abstractmethod
    def problem(self, op: Op) -> str:
        """The reason why ``op`` cannot be cut as it wants; "" if it can, or is another pass's."""
