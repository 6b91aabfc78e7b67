from array import array
from collections.abc import Callable

def move_blocks(
    columns: tuple[array[int], ...],
    order: array[int],
    shuffled: array[int],
    first_live: int,
    moves: int,
    keeps_peak: bool,
    window: int,
    idle: int,
    work: int,
    is_late: Callable[[], bool],
    /,
) -> tuple[int, int]: ...
def measure_steps(
    columns: tuple[array[int], ...],
    order: array[int],
    steps: array[int],
    first_live: int,
    /,
) -> None: ...
def order_nodes(
    columns: tuple[array[int], ...],
    order: array[int],
    levels: array[int],
    is_greedy: int,
    /,
) -> None: ...
def merge_nodes(
    columns: tuple[array[int], ...],
    order: array[int],
    successor_starts: array[int],
    successors: array[int],
    made_starts: array[int],
    made: array[int],
    weights: array[int],
    /,
) -> tuple[bytes, ...]: ...
def reduce_links(
    starts: array[int],
    items: array[int],
    order: array[int],
    kept_starts: array[int],
    kept: array[int],
    /,
) -> None: ...
