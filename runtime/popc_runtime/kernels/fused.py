"""Chains of functions of single elements, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.blocking import BLOCK_BYTES, split
from popc_runtime.kernels.fused_steps import Step, last_uses, steps_of
from popc_runtime.kernels.parallel import parallel_calls
from popc_runtime.kernels.preparation import prepare
from popc_runtime.kernels.sharing import even_slices

__all__ = ["KERNELS"]

# From so many elements on, threads share them: see `blocking`.
_WORTH_SHARING: Final = 1 << 19
_MOST_SHARES: Final = 4


def _fused(binding: Binding) -> Calls:
    """Each step by its own kernel, so that it is rounded as the same instruction alone."""
    operands = [binding.input(index) for index in range(len(binding.inputs))]
    steps = steps_of(binding.attributes, len(operands))
    out = binding.output()
    widest = max(step.dtype.itemsize for step in steps)
    pieces = list(split(out, operands, BLOCK_BYTES // widest))
    shares = _MOST_SHARES if out.size >= _WORTH_SHARING else 1
    cuts = even_slices(len(pieces), shares)
    builds = [partial(_blocks, binding, steps, pieces[cut]) for cut in cuts]
    return parallel_calls(binding.scratch, builds)


def _blocks(
    binding: Binding, steps: Sequence[Step], pieces: Sequence[tuple[Array, ...]]
) -> Iterator[Call]:
    """Blocks one after another with the same temporaries."""
    capacity = max((piece[0].size for piece in pieces), default=0)
    places = _places(steps, len(binding.inputs))
    count = max((place for place, _ in places), default=-1) + 1
    types = [next(dtype for place, dtype in places if place == index) for index in range(count)]
    memory = [binding.scratch.take((capacity,), dtype.storage) for dtype in types]
    mark = binding.scratch.mark()
    for out, *operands in pieces:
        spaces = [memory[place][: out.size].reshape(out.shape) for place, _ in places]
        values = [*operands, *spaces]
        shared = any(
            one < len(operands) and np.may_share_memory(out, operands[one])
            for one in steps[-1].operands
        )
        if not shared:  # else the last step would have to be one that may work in place
            values[-1] = out
        for number, step in enumerate(steps):
            binding.scratch.rewind(mark)
            yield from _step_calls(binding, steps, step, values, len(operands) + number)
        if shared:
            yield partial(np.copyto, out, values[-1])


def _places(steps: Sequence[Step], inputs: int) -> list[tuple[int, DType]]:
    """For each step the number and the type of the temporary that it fills."""
    ends = last_uses(step.operands for step in steps)
    free: list[tuple[int, DType]] = []
    found: list[tuple[int, DType]] = []
    count = 0
    for number, step in enumerate(steps):
        place = next((one for one in free if one[1] is step.dtype), None)
        if place is None:
            place, count = (count, step.dtype), count + 1
        else:
            free.remove(place)
        found.append(place)
        dead = [one - inputs for one in dict.fromkeys(step.operands) if ends[one] == number]
        free += [found[one] for one in dead if one >= 0]
    return found


def _step_calls(
    binding: Binding, steps: Sequence[Step], step: Step, values: Sequence[Array], target: int
) -> tuple[Call, ...]:
    from popc_runtime.kernels import KERNELS

    known = len(binding.inputs)
    dtypes = [*binding.input_dtypes, *(one.dtype for one in steps)]
    inner = replace(
        binding,
        inputs=tuple(values[one] for one in step.operands),
        outputs=(values[target],),
        input_dtypes=tuple(dtypes[one] for one in step.operands),
        output_dtypes=(step.dtype,),
        attributes=step.attributes,
        constant=tuple(one < known and binding.is_constant(one) for one in step.operands),
    )
    return prepare(KERNELS[step.opcode], inner)


# Values of bfloat16 stay as they are stored from step to step.
KERNELS: Final[dict[str, Kernel]] = {"FusedElementwise": MoveKernel(_fused)}
