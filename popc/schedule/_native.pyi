from array import array
from collections.abc import Callable

def shift_blocks(
    columns: tuple[array[int], ...],
    order: array[int],
    shuffled: array[int],
    first_live: int,
    moves: int,
    keeps_peak: bool,
    window: int,
    work: int,
    is_late: Callable[[], bool],
    /,
) -> tuple[int, int]: ...
