"""Runs on numpy's arrays, with no Python between the caller and the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from popc_runtime.format import Array, TensorSpec

__all__ = ["DirectRun", "Transfer", "direct_run"]

# The results of a run, given inputs and ``out`` by name; ``None`` if nothing has run, because what
# is given is not exactly of the types, the shapes and the kind of memory that the program takes.
DirectRun: TypeAlias = (
    "Callable[[Mapping[str, object] | None, Mapping[str, Array] | None], dict[str, Array] | None]"
)


@frozen
class Transfer:
    """A move between a stream and ``memory``: by ``call``, or by a direct run itself.

    ``lands``: if nothing else writes to this memory, so that a direct run may have whoever reads it
    read the caller's instead, the bytes of the elements that are read; else 0.
    """

    stream: str
    loads: bool
    memory: memoryview
    call: Callable[[], object]
    lands: int = 0


def direct_run(
    module: Any,
    program: object,
    items: Sequence[object],
    landings: Sequence[Transfer],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    fail: Callable[[int, int], object],
    threads: int,
) -> DirectRun | None:
    """A function that runs ``program`` of the library, which consists of ``items``, on arrays.

    ``None`` if these do not move each of the tensors once, whole.  Nothing else in the program may
    call Python.  ``landings`` are the moves whose memory the library knows as a place where an
    input lands, in its order.  ``fail`` is called with the number of a record and the reason why it
    failed, and raises an error.
    """
    moves = [item for item in items if isinstance(item, Transfer)]
    sizes = {(move.stream, move.loads): move.memory.nbytes for move in moves}
    wanted = {(spec.name, True): spec.nbytes for spec in inputs}
    wanted |= {(spec.name, False): spec.nbytes for spec in outputs}
    # A library that was built from older sources does not know such runs.
    make = getattr(module, "Direct", None) if hasattr(module, "Block") else None
    if make is None or sizes != wanted or len(moves) != len(wanted):
        return None
    import numpy as np

    numbers = {id(move): number for number, move in enumerate(landings)}
    steps = {(move.stream, move.loads): step for step, move in enumerate(moves)}

    def port(spec: TensorSpec, step: int) -> tuple[object, ...]:
        storage = spec.dtype.storage
        code = np.empty((), storage).data.format or ""
        made = (spec.shape, storage)
        move = moves[step]
        landing = numbers.get(id(move), -1) if move.lands <= spec.dtype.itemsize else -1
        return spec.name, step, move.memory, code.encode(), spec.shape, made, landing

    run: DirectRun = make(
        program,
        tuple(port(spec, steps[spec.name, True]) for spec in inputs),
        tuple(port(spec, steps[spec.name, False]) for spec in outputs),
        np.ndarray,
        np.empty,
        module.Block,
        fail,
        threads,
        _stores_last(items),
    ).run
    return run


def _stores_last(items: Sequence[object]) -> bool:
    """True if a failure of the program leaves no result half written."""
    stores = [isinstance(item, Transfer) and not item.loads for item in items]
    return stores == sorted(stores)
