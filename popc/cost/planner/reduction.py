"""Plans for reductions: what tiles find on their own, and how they add that up.

Popops reduces what a tile has of each result there, sends what it has found to other tiles if there
is much of it (intermediateToIntermediate), and in the end to those that results belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final, TypeAlias

from popc.cost.formulas import reduce
from popc.cost.formulas.movement import exchange_cycles
from popc.cost.formulas.numbers import BYTES, VECTOR, WORKERS, ceil_div, round_up
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["Dims", "ReductionProblem", "ReductionStage", "plan_reduction"]

# Sizes of axes from the outermost on, as they lie, and whether they are reduced.
Dims: TypeAlias = Sequence[tuple[int, bool]]

# Partial results of each output beyond which there is a stage in between, and elements that such a
# stage leaves to a tile at least (calculateNextStep, calculateSplit).
_MANY_PARTIALS: Final = 32
_SMALLEST_PIECE: Final = 64
# What popops takes another vertex for when it decides whether workers share columns.
_VERTEX_OVERHEAD: Final = 30
_LEAST_CYCLES: Final = 4


@frozen
class ReductionProblem:
    """A reduction, and the part of it that the busiest tile has.

    Attributes:
        outputs: Results in all.
        widths: Columns, of which each makes a result, that the tile has elements of; groups of them
            lie side by side.
        rows: Elements of each that the tile has.
        run: Of these, the ones that lie side by side.
        spread: Tiles that have elements of the same result.
        lanes, result: Kinds of the elements and of the results.
        maximum: The largest are looked for, which needs no wider partial results than elements.
    """

    outputs: int
    widths: tuple[int, ...]
    rows: int
    run: int
    spread: int
    lanes: str
    result: str
    maximum: bool = False

    @property
    def partial(self) -> str:
        """The kind of partial results."""
        return "float" if self.lanes == "half" and not self.maximum else self.lanes


@frozen
class ReductionStage:
    """An exchange, if there is one, and the compute sets after it.

    ``sources`` are the pieces that the busiest tile receives, ``results`` what it has afterwards.
    """

    exchange: int
    sources: int
    bytes: int
    compute: tuple[int, ...]
    results: int


def plan_reduction(problem: ReductionProblem, target: Target) -> tuple[ReductionStage, ...]:
    """The stages of a reduction."""
    stages: list[ReductionStage] = []
    spread, width = problem.spread, min(problem.widths)
    columns = sum(problem.widths)
    if problem.rows > 1:
        result = problem.result if spread == 1 else problem.partial
        stages.append(ReductionStage(0, 0, 0, _locally(problem, result), columns))
    used = min(target.compute_tiles, ceil_div(problem.outputs * spread, columns))
    while spread > 1:
        if _ends(spread, used, target.compute_tiles):
            stages.append(_last(problem, spread, width, target))
            break
        stage, spread, width, used = _between(problem, spread, width, target)
        stages.append(stage)
    return tuple(stages)


def _ends(spread: int, used: int, tiles: int) -> bool:
    """popops' calculateNextStep: whether ``spread`` partial results go where results belong."""
    few = spread < 2 * sqrt(tiles) and used > tiles * 3 // 4
    return few or spread <= _MANY_PARTIALS


def _between(
    problem: ReductionProblem, spread: int, width: int, target: Target
) -> tuple[ReductionStage, int, int, int]:
    """A stage that reduces partial results to fewer: intermediateToIntermediate.

    Also how many are left of each result, in pieces of how many columns, on how many tiles.
    """
    tiles, kind = target.compute_tiles, problem.partial
    grain = _grain(kind, maximum=problem.maximum)
    width = round_up(width, grain)  # mergeOutputRegionsThatSplitGrainSize
    least = max(int(width // grain // sqrt(spread)), 1) * grain
    share = round_up(ceil_div(problem.outputs, tiles), grain)
    piece = min(width, max(least, share), problem.outputs)
    ideal = max(spread * problem.outputs // tiles, 1)
    parts = max(spread * piece // ideal, 1)
    if spread * piece // parts < _SMALLEST_PIECE:
        parts = max(spread * piece // _SMALLEST_PIECE, 1)
    parts = min(parts, max(spread // 2, 1))
    rows = max(ceil_div(spread, parts), 2)
    left = ceil_div(spread, rows)
    pieces = ceil_div(problem.outputs, piece) * left
    mine = ceil_div(pieces, tiles)
    compute = _on_tile((piece,) * mine, rows, kind, kind, maximum=problem.maximum)
    stage = _received(compute, mine * rows, piece, mine * piece, kind, target)
    return stage, left, piece, min(pieces, tiles)


def _last(problem: ReductionProblem, spread: int, width: int, target: Target) -> ReductionStage:
    """The stage that leaves results where they belong: intermediateToOutput."""
    kind = problem.partial
    grain = VECTOR[kind]
    share = max(ceil_div(problem.outputs, target.compute_tiles), 4 * grain)
    outputs = min(round_up(share, grain), problem.outputs)
    piece = min(width, outputs)
    widths = (piece,) * ceil_div(outputs, piece)
    compute = _on_tile(widths, spread, kind, problem.result, maximum=problem.maximum)
    return _received(compute, spread * len(widths), piece, outputs, kind, target)


def _received(
    compute: tuple[int, ...], pieces: int, width: int, results: int, kind: str, target: Target
) -> ReductionStage:
    bytes_ = pieces * width * BYTES[kind]
    payload = exchange_cycles(bytes_, target.exchange.bytes_per_cycle)
    return ReductionStage(int(payload), pieces, bytes_, compute, results)


def _locally(problem: ReductionProblem, result: str) -> tuple[int, ...]:
    """Cycles of reducing what a tile has itself: inputToIntermediateNoExchange."""
    columns, lanes = sum(problem.widths), problem.lanes
    outer = problem.rows // problem.run
    if problem.run == 1 or columns == 1:
        return _on_tile(problem.widths, problem.rows, lanes, result, maximum=problem.maximum)
    if outer <= 1:
        return (WORKERS * reduce.continuous(ceil_div(columns, WORKERS), problem.rows, lanes),)
    # All elements of runs are columns at first, whose sums lie side by side then.
    splits = max(
        parts for parts in range(1, WORKERS + 1) if _shared(columns, problem.run, parts, lanes)
    )
    width = columns // splits
    first = _vertex(width * problem.run, outer, lanes, problem.partial, maximum=problem.maximum)
    return WORKERS * first, WORKERS * reduce.continuous(width, problem.run, problem.partial)


def _grain(lanes: str, *, maximum: bool) -> int:
    """Columns that a worker takes at once: findGrainSizeForOp."""
    return VECTOR[lanes] if maximum else 2 * VECTOR[lanes]


def _on_tile(
    widths: Sequence[int], rows: int, lanes: str, result: str, *, maximum: bool
) -> tuple[int, ...]:
    """Groups of columns, dealt to workers: connectReductions."""
    if max(widths) == 1 and len(widths) > 1:
        return (WORKERS * reduce.continuous(ceil_div(len(widths), WORKERS), rows, lanes),)
    pieces = _pieces(widths, _grain(lanes, maximum=maximum))
    partial = result if maximum or lanes != "half" else "float"
    if len(pieces) >= WORKERS:
        return (WORKERS * _dealt(pieces, rows, lanes, result, maximum=maximum),)
    splits = _splits(pieces, rows, result, maximum=maximum)
    first = [
        _vertex(piece, ceil_div(rows, parts), lanes, partial, maximum=maximum)
        for piece, parts in zip(pieces, splits, strict=True)
    ]
    if max(splits) == 1:
        return (WORKERS * max(first),)
    second = max(
        _vertex(piece, parts, partial, result, maximum=maximum)
        for piece, parts in zip(pieces, splits, strict=True)
        if parts > 1
    )
    return WORKERS * max(first), WORKERS * second


def _shared(columns: int, run: int, parts: int, lanes: str) -> bool:
    """True if so many workers may share columns of which runs lie side by side."""
    return parts == 1 or (columns % parts == 0 and columns * run // parts % VECTOR[lanes] == 0)


def _dealt(pieces: Sequence[int], rows: int, lanes: str, result: str, *, maximum: bool) -> int:
    """Cycles of the worker with most to do; pieces of one size are neighbours and make one."""
    if min(pieces) == max(pieces):
        columns = pieces[0] * ceil_div(len(pieces), WORKERS)
        return _vertex(columns, rows, lanes, result, maximum=maximum)
    load = [0] * WORKERS
    for piece in sorted(pieces, reverse=True):
        worker = load.index(min(load))
        load[worker] += _vertex(piece, rows, lanes, result, maximum=maximum)
    return max(load)


def _pieces(widths: Sequence[int], grain: int) -> list[int]:
    """Groups of columns, cut at multiples of ``grain`` so that workers share the columns evenly."""
    if len(widths) >= WORKERS:
        return list(widths)
    share = round_up(ceil_div(sum(widths), WORKERS), grain)
    return [min(share, width - begin) for width in widths for begin in range(0, width, share)]


def _splits(pieces: Sequence[int], rows: int, result: str, *, maximum: bool) -> list[int]:
    """Workers that share the rows of each piece: splitTwoStageReductionsBetweenWorkers."""
    work = [
        ceil_div(piece * rows, _at_once(piece, _grain(result, maximum=maximum))) for piece in pieces
    ]
    cycles = [_VERTEX_OVERHEAD + item for item in work]
    most = [min(rows // 2, item // _LEAST_CYCLES) for item in cycles]
    splits = [1] * len(pieces)
    for _ in range(WORKERS - len(pieces)):
        slowest = cycles.index(max(cycles))
        parts = splits[slowest] + 1
        shared = 2 * _VERTEX_OVERHEAD + work[slowest] // parts
        if parts >= most[slowest] or shared >= cycles[slowest]:
            break
        splits[slowest], cycles[slowest] = parts, shared
    before = _VERTEX_OVERHEAD + max(work)
    return splits if max(cycles) < before else [1] * len(pieces)


def _at_once(columns: int, width: int) -> int:
    """popops' opsPerCycle: elements a cycle that a vertex with so many columns may take."""
    if width % columns == 0:
        return width
    while columns % width:
        width //= 2
    return width


def _vertex(columns: int, rows: int, lanes: str, result: str, *, maximum: bool) -> int:
    """Cycles of a worker: getReductionVertexSpecialisation."""
    if columns == 1:
        return int(reduce.continuous(1, rows, lanes))
    if columns % VECTOR[lanes] == 0:
        return int(reduce.strided(columns, rows, lanes, result=result, maximum=maximum))
    return reduce.irregular(columns, rows, lanes, result=result, maximum=maximum)
