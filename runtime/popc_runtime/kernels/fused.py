"""Chains of functions of single elements, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.blocking import BLOCK_BYTES, split
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.preparation import prepare
from popc_runtime.kernels.core.sharing import even_slices
from popc_runtime.kernels.parts.fused_steps import FusedStep, last_uses, steps_of

__all__ = ["KERNELS", "steps_apart"]

# From so many elements on, threads share them: see `blocking`.
_WORTH_SHARING: Final = 1 << 19
_MOST_SHARES: Final = 4  # as there


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
    binding: Binding, steps: Sequence[FusedStep], pieces: Sequence[tuple[Array, ...]]
) -> Iterator[Call]:
    """Blocks one after another with the same temporaries."""
    capacity = max((piece[0].size for piece in pieces), default=0)
    memory = _memory(binding, steps, capacity)
    mark = binding.scratch.mark()
    for out, *operands in pieces:
        values = [*operands, *(space[: out.size].reshape(out.shape) for space in memory)]
        shared = any(
            index < len(operands) and np.may_share_memory(out, operands[index])
            for index in steps[-1].operands
        )
        if not shared:  # else the last step would have to be one that may work in place
            values[-1] = out
        for number, step in enumerate(steps):
            binding.scratch.rewind(mark)
            inner = _step_binding(binding, steps, values, number)
            yield from _step_calls(step, inner)
        if shared:
            yield partial(np.copyto, out, values[-1])


def steps_apart(binding: Binding) -> Iterator[tuple[FusedStep, Binding]]:
    """Each step as an instruction on whole tensors, for those who look at every result.

    The operands are valid while calls for one step after another are made, and run in that order;
    the results of the last one still have to be moved to where the binding wants them.
    """
    operands = [binding.input(index) for index in range(len(binding.inputs))]
    out = binding.output()
    steps = steps_of(binding.attributes, len(operands))
    memory = _memory(binding, steps, out.size)
    values = [*operands, *(space.reshape(out.shape) for space in memory)]
    mark = binding.scratch.mark()
    for number, step in enumerate(steps):
        binding.scratch.rewind(mark)
        yield step, _step_binding(binding, steps, values, number)


def _memory(binding: Binding, steps: Sequence[FusedStep], elements: int) -> list[Array]:
    """For each step where its result lies; later ones may overwrite what nobody reads any more."""
    places = _places(steps, len(binding.inputs))
    count = max((place for place, _ in places), default=-1) + 1
    types = [next(dtype for place, dtype in places if place == index) for index in range(count)]
    memory = [binding.scratch.take((elements,), dtype.storage) for dtype in types]
    return [memory[place] for place, _ in places]


def _places(steps: Sequence[FusedStep], inputs: int) -> list[tuple[int, DType]]:
    """For each step the number and the type of the temporary that it fills."""
    ends = last_uses(step.operands for step in steps)
    free: list[tuple[int, DType]] = []
    found: list[tuple[int, DType]] = []
    count = 0
    for number, step in enumerate(steps):
        place = next((spare for spare in free if spare[1] is step.dtype), None)
        if place is None:
            place, count = (count, step.dtype), count + 1
        else:
            free.remove(place)
        found.append(place)
        dead = [index - inputs for index in dict.fromkeys(step.operands) if ends[index] == number]
        free += [found[value] for value in dead if value >= 0]
    return found


def _step_binding(
    binding: Binding, steps: Sequence[FusedStep], values: Sequence[Array], number: int
) -> Binding:
    known, step = len(binding.inputs), steps[number]
    dtypes = [*binding.input_dtypes, *(each.dtype for each in steps)]
    return replace(
        binding,
        inputs=tuple(values[index] for index in step.operands),
        outputs=(values[known + number],),
        input_dtypes=tuple(dtypes[index] for index in step.operands),
        output_dtypes=(step.dtype,),
        attributes=step.attributes,
        constant=tuple(index < known and binding.is_constant(index) for index in step.operands),
    )


def _step_calls(step: FusedStep, binding: Binding) -> tuple[Call, ...]:
    from popc_runtime.kernels import KERNELS

    return prepare(KERNELS[step.opcode], binding)


# Values of bfloat16 stay as they are stored from step to step.
KERNELS: Final[dict[str, Kernel]] = {"FusedElementwise": MoveKernel(_fused)}
