"""The table of what may make a program fit.

A row says when it is worth trying, and what to try, from the mildest to the strongest.  Values of
options are written as an options file would have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from popc.options import SCHEMA
from popc.study.advice.change import Change
from popc.study.advice.situation import Fix, Situation
from popc.target import ALIASES, PRESETS, Target, find_target

__all__ = ["FIXES"]

_MAX_PARTS: Final = 16  # of a batch or of a product
_MAX_PRODUCTS: Final = 24  # that are named one by one
_MAX_IPUS: Final = 16  # a pod of four machines of four chips
_MAX_STEPS: Final = 4  # of a ladder; of longer ones, powers of two
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
    "inputs get a dimension for micro-batches, and what depends on a whole batch, such as batch "
    "normalisation, sees micro-batches only"
)
_HALF_PARTIALS: Final = "products of half precision add up in half precision: results differ"
_OTHER_HARDWARE: Final = "it needs other hardware"


def _options(**options: Any) -> Change:
    return Change(options)


def _other(name: str, *values: object) -> Callable[[Situation], Iterator[Change]]:
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


def _gradients_early(situation: Situation) -> Iterator[Change]:
    if not situation.value("decompose_grad_sum"):
        yield _options(decompose_grad_sum=True)


def _batch_parts(situation: Situation) -> Iterator[Change]:
    found = situation.batch()
    size = found[0] if found is not None else situation.report.samples
    current = max(situation.value("batch_serialization_factor"), 1)
    methods: tuple[dict[str, str], ...] = ({},)
    if not situation.request.is_set("batch_serialization_method"):
        methods = ({}, {"batch_serialization_method": "unroll_static"})
    for parts in _divisors(size):
        for method in methods if parts > current else ():
            yield _options(batch_serialization_factor=parts, **method)


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
    if len(found) > _MAX_STEPS:
        found = [parts for parts in found if parts & (parts - 1) == 0] or found[:_MAX_STEPS]
    return found


def _cut_products(situation: Situation) -> Iterator[Change]:
    """Cuts of products during which memory is short; rows or columns of results at a time."""
    if situation.value("annotate"):
        return
    selectors = _products_over(situation)
    if not 0 < len(selectors) <= _MAX_PRODUCTS:
        return
    for factor in (2, 4, 8, 16):
        for mode in ("output_channels", "input_channels"):
            cut = {"serialize_matmul_mode": mode, "serialize_matmul_factor": factor}
            yield _options(annotate=[{**selector, **cut} for selector in selectors])


def _products_over(situation: Situation) -> list[dict[str, str]]:
    """Selectors for them: the name of the node, or of its result if it has none."""
    report = situation.report
    tight = {
        step.name for chip in report.memory for step in chip.steps if step.busiest > chip.limit
    }
    found: dict[str, dict[str, str]] = {}
    for op in report.ops:
        if op.name in tight and op.op_type in ("Gemm", "MatMul") and op.origin:
            unnamed = op.origin.startswith(f"{op.op_type}(")
            selector = {"output": op.origin.partition("(")[2].rstrip(")")}
            found.setdefault(op.origin, selector if unnamed else {"nodes": op.origin})
    return list(found.values())


def _outlining(situation: Situation) -> Iterator[Change]:
    if not situation.value("enable_outlining"):
        yield _options(enable_outlining=True)
        yield _options(enable_outlining=True, subgraph_copying_strategy="just_in_time")


def _off_chip(situation: Situation) -> Iterator[Change]:
    """First what is needed least often."""
    if not situation.report.target.host.streaming_memory_bytes:
        return
    state, accumulators, activations = (
        f"{name}_tensor_location" for name in ("optimizer_state", "accumulator", "activation")
    )
    weights = "weight_tensor_location"
    choices: list[tuple[str, ...]] = [(weights,)]
    if situation.trains:
        summing = (accumulators,) if situation.value("accumulation_factor") > 1 else ()
        choices = [
            (state,),
            (activations,),
            (weights,),
            (state, weights),
            (state, activations),
            (state, weights, activations, *summing),
        ]
    for names in choices:
        if not any(situation.value(name) for name in names):
            yield Change({name: {"storage": "off_chip"} for name in names})


def _sharded(situation: Situation) -> Iterator[Change]:
    if situation.value("replicated_graph_count") == 1 or not situation.trains:
        return
    sharded = {"replicated_tensor_sharding": True}
    for names in (["optimizer_state"], ["weight"], ["optimizer_state", "weight"]):
        options = [f"{name}_tensor_location" for name in names]
        if not any(situation.value(name) for name in options):
            yield Change(dict.fromkeys(options, sharded))


def _spread(situation: Situation) -> Iterator[Change]:
    """Over the chips that there are."""
    if situation.value("num_ipus") > 1 and situation.value("virtual_graph_mode") == "off":
        yield _options(virtual_graph_mode="auto")
        yield from _pipelines(situation, situation.value("num_ipus"))


def _more_ipus(situation: Situation) -> Iterator[Change]:
    current = situation.value("num_ipus")
    if situation.value("virtual_graph_mode") not in ("off", "auto"):
        return
    most = min(situation.report.target.links.max_ipus, _MAX_IPUS)
    chips = current * 2
    while chips <= most:
        yield _options(num_ipus=chips, virtual_graph_mode="auto")
        yield from _pipelines(situation, chips)
        chips *= 2


def _pipelines(situation: Situation, chips: int) -> Iterator[Change]:
    """Chips that work at the same time, if there are enough micro-batches for it."""
    name = "accumulation_factor" if situation.trains else "batches_per_step"
    if situation.value(name) >= chips and not situation.value("enable_pipelining"):
        yield _options(num_ipus=chips, virtual_graph_mode="auto", enable_pipelining=True)


def _more_tiles(situation: Situation) -> Iterator[Change]:
    for name in ("num_io_tiles", "tiles_per_ipu"):
        if situation.value(name):
            yield _options(**{name: None})


def _other_targets(situation: Situation) -> Iterator[Change]:
    """Targets with more memory, the smallest first."""
    current = situation.value("target")
    target = find_target(current)
    others = [find_target(name) for name in PRESETS if name != ALIASES.get(current, current)]
    larger = [other for other in others if _memory(other) > _memory(target)]
    restricted = {"tiles_per_ipu": None} if situation.value("tiles_per_ipu") else {}
    for bigger in sorted(larger, key=_memory):
        yield _options(target=bigger.name, **restricted)


def _memory(target: Target) -> tuple[int, int]:
    """Bytes of a tile and of a chip."""
    return target.tile.memory_bytes, target.tile.memory_bytes * target.tiles_per_ipu


def _left_out(situation: Situation) -> Iterator[Change]:
    for name in _DISPENSABLE:
        if situation.request.is_set(name) and situation.value(name) != _DEFAULTS[name]:
            yield _options(**{name: None})


_DEFAULTS: Final[Mapping[str, Any]] = {spec.name: spec.default for spec in SCHEMA}

FIXES: Final = (
    Fix("options left out", _left_out),
    Fix(
        "recomputation",
        _training(_other("auto_recomputation", "norm_only", "standard", "recompute_all")),
    ),
    Fix("micro-batches", _training(_micro_batches), note=f"{_MICRO_BATCHES}; {_OTHER_SUMS}"),
    Fix("the batch in parts", _batch_parts),
    Fix("code of repeated parts shared", _outlining),
    Fix("products cut into parts", _cut_products),
    Fix("streaming memory", _off_chip),
    Fix("weights and state divided among replicas", _sharded),
    Fix("the model spread over the chips", _spread),
    Fix("gradients added up early", _training(_gradients_early), note=_OTHER_SUMS),
    Fix("all tiles", _more_tiles),
    Fix("more chips", _more_ipus, note=_OTHER_HARDWARE, elsewhere=True),
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
    """True if much of the memory holds numbers of half precision."""
    tensors = [tensor for chip in situation.report.memory for tensor in chip.tensors]
    halves = sum(tensor.bytes for tensor in tensors if tensor.type.startswith("float16"))
    return 2 * halves > sum(tensor.bytes for tensor in tensors)
