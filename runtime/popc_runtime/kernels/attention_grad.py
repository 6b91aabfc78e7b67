"""The gradient of scaled dot-product attention.

The softmax P of a block of scores is computed again from Q and K: storing it would cost more.
With G the gradient of the result O, and S the scores before the softmax:

    dV = P^T G        dP = G V^T        dS = P * (dP - rowsum(G * O))

As in the forward pass, exponentials are left without their division by the sums: G is divided.
Blocks that share keys run one after another and add up what they find for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.attention_problem import AttentionProblem, Unit, set_up, units
from popc_runtime.kernels.softmax import exponentials

__all__ = ["KERNELS"]

_PASSES: Final = 9  # over the scores; an exponential counts as three


@dataclass(frozen=True, slots=True)
class _Grads:
    """Gradients given and wanted.

    Attributes:
        given, out: The gradient of the result, and the result: [B, Hk, G, S, Dv].
        q: [B, Hk, G, S, D].
        k, v: [B, Hk, T, D] and [B, Hk, T, Dv].
        mask: With five dimensions, as the scores; those of size 1 are summed over.  Or ``None``.
    """

    given: Array
    out: Array
    q: Array
    k: Array
    v: Array
    mask: Array | None


def _attention_grad(binding: Binding) -> Calls:
    """Operands: those of the attention, then the gradient of its result, and the result."""
    targets = [out for out in binding.outputs if out is not None]
    if binding.input(5).size == 0 or binding.input(1).size == 0:
        return tuple(partial(out.fill, 0) for out in targets)
    problem, calls = set_up(binding)
    grads = _Grads(
        given=problem.by_head(binding.input(5)),
        out=problem.by_head(binding.input(6)),
        q=binding.output(0).reshape(problem.q.shape),
        k=binding.output(1),
        v=binding.output(2),
        mask=_mask_grad(binding, problem),
    )
    groups = [list(group) for _, group in groupby(units(problem), key=lambda unit: unit[:2])]
    scores = problem.q.size // problem.q.shape[-1] * problem.k.shape[2]
    depth = 3 * problem.k.shape[3] + 2 * problem.v.shape[3]
    # Blocks of different heads may add to the same elements of the mask's gradient.
    most = len(groups) if grads.mask is None else 1
    shares = share_count(multiplications=scores * depth, elements=_PASSES * scores, most=most)
    chunks = [
        partial(_some_groups, problem, grads, groups[part], binding.scratch)
        for part in even_slices(len(groups), shares)
    ]
    if grads.mask is None:
        return (*calls, *parallel_calls(binding.scratch, chunks))
    store = partial(
        np.copyto, targets[3], grads.mask.reshape(targets[3].shape), casting="same_kind"
    )
    return (
        *calls,
        partial(grads.mask.fill, 0),
        *parallel_calls(binding.scratch, chunks),
        *(() if targets[3].dtype == problem.dtype else (store,)),
    )


def _mask_grad(binding: Binding, problem: AttentionProblem) -> Array | None:
    """The memory in which the blocks add up the gradient of the mask, if it is wanted."""
    if not binding.integer("mask_grad", 0):
        return None
    out = binding.output(3)
    batch, heads, rows, keys = (1,) * (4 - out.ndim) + out.shape
    kv_heads, group = problem.q.shape[1:3] if heads > 1 else (1, 1)
    shape = (batch, kv_heads, group, rows, keys)
    if out.dtype == problem.dtype:
        return out.reshape(shape)
    return binding.scratch.take(shape, problem.dtype)


def _some_groups(
    problem: AttentionProblem, grads: _Grads, groups: Sequence[Sequence[Unit]], scratch: Scratch
) -> Iterator[Call]:
    """Groups of blocks with the same keys, one after another, with the same temporaries."""
    mark = scratch.mark()
    for group in groups:
        scratch.rewind(mark)
        where = group[0][:2]
        sums = [_Sum(target[where], problem, scratch) for target in (grads.k, grads.v)]
        whole = len(group) == 1 and problem.visible_keys(group[0]) == problem.k.shape[2]
        if not whole:
            yield from (partial(total.values.fill, 0) for total in sums)
        inner = scratch.mark()
        for unit in group:
            scratch.rewind(inner)
            yield from _unit_calls(problem, grads, unit, sums, scratch, add=not whole)
        for total in sums:
            yield from total.store()


class _Sum:
    """The gradient of the keys (or values) of a group of blocks."""

    def __init__(self, target: Array, problem: AttentionProblem, scratch: Scratch) -> None:
        self._target = target
        direct = target.dtype == problem.dtype
        self.values = target if direct else scratch.take(target.shape, problem.dtype)

    def product(self, a: Array, b: Array, scratch: Scratch, *, add: bool) -> Iterator[Call]:
        """a^T b for the leading keys; ``add``: to what there is."""
        values = self.values[:, :, : a.shape[-1]]
        left = a.swapaxes(-1, -2)
        if not add:
            yield partial(np.matmul, left, b, out=values)
            return
        part = scratch.take(values.shape, values.dtype)
        yield partial(np.matmul, left, b, out=part)
        yield partial(np.add, values, part, out=values)

    def store(self) -> list[Call]:
        """Convert to the type of the result."""
        if self.values is self._target:
            return []
        return [partial(np.copyto, self._target, self.values, casting="same_kind")]


def _unit_calls(
    problem: AttentionProblem,
    grads: _Grads,
    unit: Unit,
    sums: Sequence[_Sum],
    scratch: Scratch,
    *,
    add: bool,
) -> Iterator[Call]:
    keys = problem.visible_keys(unit)
    wide, scores, calls = problem.products(unit, keys, scratch)
    yield from calls
    capped, calls = _biased(problem, unit, scores, scratch)
    yield from calls
    batch, heads, group, rows, _ = scores.shape
    flat = (batch, heads, group * rows)
    k, v = (array[unit[0], unit[1], :keys] for array in (problem.k, problem.v))
    powers = scratch.take(scores.shape, scores.dtype)
    total = scratch.take((*scores.shape[:-1], 1), scores.dtype)
    yield exponentials(
        scores.reshape(total.size, keys, 1),
        powers.reshape(total.size, keys, 1),
        total.reshape(-1, 1, 1),
        scratch,
        zero=True,
    )
    given, products = (scratch.take(grads.given[unit].shape, scores.dtype) for _ in range(2))
    yield partial(np.divide, grads.given[unit], total, out=given)
    yield partial(np.multiply, given, grads.out[unit], out=products)
    yield partial(np.matmul, products, np.ones((v.shape[-1], 1), products.dtype), out=total)
    slopes = scores.reshape(*flat, keys)
    yield from sums[1].product(
        powers.reshape(*flat, keys), given.reshape(*flat, -1), scratch, add=add
    )
    yield partial(np.matmul, given.reshape(*flat, -1), v.swapaxes(-1, -2), out=slopes)
    yield partial(np.subtract, scores, total, out=scores)
    yield partial(np.multiply, scores, powers, out=scores)
    yield from _mask_calls(grads, unit, scores)
    if capped is not None:
        yield from _uncapped(problem, scores, capped)
    result = scratch.take((*flat, k.shape[-1]), scores.dtype)
    scale = scores.dtype.type(problem.scale / (problem.softcap or 1.0))
    target = grads.q[unit]
    yield partial(np.matmul, slopes, k, out=result)
    yield partial(np.multiply, result.reshape(target.shape), scale, out=target, casting="same_kind")
    yield from sums[0].product(slopes, wide.reshape(*flat, -1), scratch, add=add)


def _biased(
    problem: AttentionProblem, unit: Unit, scores: Array, scratch: Scratch
) -> tuple[Array | None, list[Call]]:
    """Soft capping and the mask, in place; the scores between -1 and 1, if they are capped."""
    capped: Array | None = None
    calls: list[Call] = []
    if problem.softcap:
        capped = scratch.take(scores.shape, scores.dtype)
        cap = problem.dtype.type(problem.softcap)
        calls += [
            partial(np.tanh, scores, out=capped),
            partial(np.multiply, capped, cap, out=scores),
        ]
    bias = problem.mask.bias_of(unit, scores.shape[-1])
    if bias is not None:
        calls.append(partial(np.add, scores, bias, out=scores))
    return capped, calls


def _uncapped(problem: AttentionProblem, slopes: Array, capped: Array) -> Iterator[Call]:
    """The slope of cap * tanh(x) is cap * (1 - tanh(x) ** 2)."""
    cap, one = problem.dtype.type(problem.softcap), problem.dtype.type(1)
    yield partial(np.square, capped, out=capped)
    yield partial(np.subtract, one, capped, out=capped)
    yield partial(np.multiply, capped, cap, out=capped)
    yield partial(np.multiply, slopes, capped, out=slopes)


def _mask_calls(grads: _Grads, unit: Unit, slopes: Array) -> Iterator[Call]:
    """Add what a block contributes to the gradient of the mask."""
    if grads.mask is None:
        return
    windows = (*unit, slice(slopes.shape[-1]))
    shape = grads.mask.shape
    target = grads.mask[
        tuple(slice(None) if size == 1 else part for size, part in zip(shape, windows, strict=True))
    ]
    axes = tuple(axis for axis, size in enumerate(target.shape) if size != slopes.shape[axis])

    def call() -> None:
        part = slopes.sum(axis=axes, keepdims=True) if axes else slopes
        np.add(target, part, out=target)

    yield call


KERNELS: Final[dict[str, Kernel]] = {
    "AttentionGrad": _attention_grad,
}
