"""The program that is to be improved, and how tables say what may improve it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from popc.frontend import LoadedModel
from popc.request import CompileRequest
from popc.study.advice.change import Change
from popc.study.advice.search import Ladder
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = ["Fix", "Situation", "ladders_for"]


@frozen
class Situation:
    """The program that is to fit.

    Attributes:
        request: What is compiled.
        loaded: The model.
        report: What it costs.
    """

    request: CompileRequest
    loaded: LoadedModel
    report: CostReport

    @property
    def trains(self) -> bool:
        """True if it has a backward pass."""
        return self.request.training is not None

    def value(self, name: str) -> Any:
        """The value of an option."""
        return getattr(self.request.options, name)

    def batch(self) -> tuple[int, Callable[[int], Change]] | None:
        """The size of the batch, and how to set another one; ``None`` if the model fixes it."""
        request, leading = self.request, self.loaded.leading_dims()
        names = dict.fromkeys(leading.values())
        names.pop("", None)
        sized = [name for name in names if name in request.dims]
        if sized:
            size = request.dims[sized[0]]
            same = [name for name in sized if request.dims[name] == size]
            return size, lambda new: Change(dims=dict.fromkeys(same, new))
        shaped = {name: shape for name, shape in request.shapes.items() if name in leading}
        sizes = {shape[0] for shape in shaped.values() if shape}
        if len(sizes) != 1:
            return None
        return sizes.pop(), lambda new: Change(
            shapes={name: (new, *shape[1:]) for name, shape in shaped.items()}
        )


@frozen
class Fix:
    """A row of the table of fixes: when it may help, and the changes to try.

    Attributes:
        name: What a reader calls it.
        steps: What to try, the mildest first; nothing if it makes no sense.
        monotonous: See `Ladder`.
        note: See `Ladder`.
        elsewhere: See `Ladder`.
    """

    name: str
    steps: Callable[[Situation], Iterator[Change]]
    monotonous: bool = False
    note: str = ""
    elsewhere: bool = False


def ladders_for(situation: Situation, fixes: Sequence[Fix]) -> list[Ladder]:
    """The ladders to try, in the order of the table, which begins with what most often helps."""
    ladders: list[Ladder] = []
    for fix in fixes:
        steps = tuple(change for change in fix.steps(situation) if change)
        if steps:
            ladders.append(Ladder(fix.name, steps, fix.monotonous, fix.note, fix.elsewhere))
    return ladders
