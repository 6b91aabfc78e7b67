"""The table of what may make a program fit.

A row says when it is worth trying, and what to try, from the mildest to the strongest.  Values of
options are written as an options file would have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from popc.advice.question import Change, Question
from popc.advice.search import Ladder
from popc.frontend import LoadedModel
from popc.options import SCHEMA
from popc.target import ALIASES, PRESETS, Target, find_target

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = ["FIXES", "Fix", "Situation", "ladders_for"]

_MAX_PARTS: Final = 64
_STEP: Final = 0.01
# Options without which results are the same; they may cost memory.
_DISPENSABLE: Final = (
    "available_memory_proportions",
    "disabled_passes",
    "enable_inplace",
    "kahn_tie_breaker",
    "merge_all_gather_collectives",
    "merge_all_reduce_collectives",
    "merge_reduce_scatter_collectives",
    "merge_var_update",
    "scheduler_work_limit",
    "scheduling_algorithm",
    "swap_limit_scheduler",
)

_OTHER_SUMS: Final = "sums of gradients are added up in another order"
_SMALLER_BATCH: Final = "a run processes fewer samples"
_MICRO_BATCHES: Final = (
    "the batch stays as it is, but inputs get a dimension for its micro-batches, and what "
    "depends on a whole batch, such as batch normalisation, sees micro-batches"
)
_HALF_PARTIALS: Final = "products of half precision add up in half precision: results differ"
_OTHER_HARDWARE: Final = "it takes other hardware"


@dataclass(frozen=True, slots=True)
class Situation:
    """The program that is to fit.

    Attributes:
        question: What is compiled.
        loaded: The model.
        report: What it costs.
    """

    question: Question
    loaded: LoadedModel
    report: CostReport

    @property
    def trains(self) -> bool:
        """Whether it has a backward pass."""
        return self.question.training is not None

    def value(self, name: str) -> Any:
        """Of an option."""
        return getattr(self.question.options, name)

    def batch(self) -> tuple[int, Callable[[int], Change]] | None:
        """The size of the batch, and how to set another one; ``None`` if the model fixes it."""
        question, leading = self.question, self.loaded.leading_dims()
        names = dict.fromkeys(leading.values())
        names.pop("", None)
        sized = [name for name in names if name in question.dims]
        if sized:
            size = question.dims[sized[0]]
            same = [name for name in sized if question.dims[name] == size]
            return size, lambda new: Change(dims=dict.fromkeys(same, new))
        shaped = {name: shape for name, shape in question.shapes.items() if name in leading}
        sizes = {shape[0] for shape in shaped.values() if shape}
        if len(sizes) != 1:
            return None
        return sizes.pop(), lambda new: Change(
            shapes={name: (new, *shape[1:]) for name, shape in shaped.items()}
        )


@dataclass(frozen=True, slots=True)
class Fix:
    """A row of the table.

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


def ladders_for(situation: Situation, fixes: Sequence[Fix] | None = None) -> list[Ladder]:
    """What to try, in the order of the table, which begins with what most often helps."""
    ladders: list[Ladder] = []
    for fix in FIXES if fixes is None else fixes:
        steps = tuple(change for change in fix.steps(situation) if change)
        if steps:
            ladders.append(Ladder(fix.name, steps, fix.monotonous, fix.note, fix.elsewhere))
    return ladders


def _options(**options: Any) -> Change:
    return Change(options)


def _other(name: str, *values: Any) -> Callable[[Situation], Iterator[Change]]:
    """Other values of an option, but the one that it has."""

    def steps(situation: Situation) -> Iterator[Change]:
        current = situation.value(name)
        yield from (_options(**{name: value}) for value in values if value != current)

    return steps


def _training(
    steps: Callable[[Situation], Iterator[Change]],
) -> Callable[[Situation], Iterator[Change]]:
    """The same if the program trains."""

    def guarded(situation: Situation) -> Iterator[Change]:
        if situation.trains:
            yield from steps(situation)

    return guarded


def _proportions(situation: Situation) -> Iterator[Change]:
    """All lower ones, to the hundredth."""
    current = situation.value("available_memory_proportion")
    for hundredths in range(100, -1, -1):
        if hundredths * _STEP < current - _STEP / 2:
            yield _options(available_memory_proportion=round(hundredths * _STEP, 2))


def _batch_parts(situation: Situation) -> Iterator[Change]:
    found = situation.batch()
    size = found[0] if found is not None else situation.report.samples
    current = max(situation.value("batch_serialization_factor"), 1)
    for parts in _divisors(size):
        if parts > current:
            yield _options(batch_serialization_factor=parts)


def _smaller_batches(situation: Situation) -> Iterator[Change]:
    found = situation.batch()
    if found is not None:
        size, change = found
        yield from (change(new) for new in reversed(range(1, size)))


def _micro_batches(situation: Situation) -> Iterator[Change]:
    found = situation.batch()
    if found is None:
        return
    size, change = found
    factor = situation.value("accumulation_factor")
    for parts in _divisors(size):
        yield change(size // parts) + _options(accumulation_factor=factor * parts)


def _divisors(size: int) -> list[int]:
    """Numbers of equal parts, from 2 on; powers of two if there are many."""
    found = [parts for parts in range(2, min(size, _MAX_PARTS) + 1) if size % parts == 0]
    if len(found) > 6:
        found = [parts for parts in found if parts & (parts - 1) == 0] or found[:6]
    return found


def _off_chip(*names: str) -> Callable[[Situation], Iterator[Change]]:
    def steps(situation: Situation) -> Iterator[Change]:
        if not situation.report.target.host.streaming_memory_bytes:
            return
        if all(dict(situation.value(name)).get("storage") == "off_chip" for name in names):
            return
        yield Change({name: {"storage": "off_chip"} for name in names})

    return steps


def _sharded(situation: Situation) -> Iterator[Change]:
    if situation.value("replicated_graph_count") > 1:
        yield from _other("shard_optimizer_state", True)(situation)


def _more_tiles(situation: Situation) -> Iterator[Change]:
    for name in ("num_io_tiles", "tiles_per_ipu"):
        if situation.value(name):
            yield _options(**{name: None})


def _other_targets(situation: Situation) -> Iterator[Change]:
    """Those with more memory, the smallest first."""
    target = situation.report.target
    current = situation.value("target")
    others = [find_target(name) for name in PRESETS if name != ALIASES.get(current, current)]
    larger = [one for one in others if _memory(one) > _memory(target)]
    restricted = {"tiles_per_ipu": None} if situation.value("tiles_per_ipu") else {}
    for one in sorted(larger, key=_memory):
        yield _options(target=one.name, **restricted)


def _memory(target: Target) -> tuple[int, int]:
    """Bytes of a tile and of a chip."""
    return target.tile.memory_bytes, target.tile.memory_bytes * target.tiles_per_ipu


def _left_out(situation: Situation) -> Iterator[Change]:
    for name in _DISPENSABLE:
        if situation.question.is_set(name) and situation.value(name) != _DEFAULTS[name]:
            yield _options(**{name: None})


_DEFAULTS: Final[Mapping[str, Any]] = {spec.name: spec.default for spec in SCHEMA}

FIXES: Final = (
    Fix("less temporary memory for products", _proportions, monotonous=True),
    Fix("options left out", _left_out),
    Fix(
        "recomputation",
        _training(_other("auto_recomputation", "norm_only", "standard", "recompute_all")),
    ),
    Fix("micro-batches", _training(_micro_batches), note=f"{_MICRO_BATCHES}; {_OTHER_SUMS}"),
    Fix("gradients added up early", _training(_other("decompose_grad_sum", True)), note=_OTHER_SUMS),
    Fix("optimizer state divided among replicas", _training(_sharded)),
    Fix("all tiles", _more_tiles),
    Fix("another target", _other_targets, note=_OTHER_HARDWARE, elsewhere=True),
    Fix(
        "sums of products in half precision",
        lambda situation: iter(
            [_options(partials_type="half", partials_type_matmuls="half")]
            if _has_half(situation)
            else []
        ),
        note=_HALF_PARTIALS,
    ),
    Fix("a smaller batch", _smaller_batches, monotonous=True, note=_SMALLER_BATCH),
)


def _has_half(situation: Situation) -> bool:
    """Whether much of the memory holds numbers of half precision."""
    tensors = [tensor for chip in situation.report.memory for tensor in chip.tensors]
    halves = sum(tensor.bytes for tensor in tensors if tensor.type.startswith("float16"))
    return 2 * halves > sum(tensor.bytes for tensor in tensors)
