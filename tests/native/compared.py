"""Problems computed by one engine or the other, wherever operands and results lie, and compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from popc.ops import OPS
from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, Binding, prepare
from popc_runtime.native import Item, Library, NativeProgram, translate
from tests.native.bindings import encode
from tests.native.bounds import as_numbers, bounds
from tests.native.layouts import Place, place
from tests.native.lending import run_lent
from tests.native.problems import Problem
from tests.native.tolerances import is_exact
from tests.support.oracles import hidden_operands

__all__ = ["Where", "check", "check_numpy", "has_kernel", "takeable"]


@dataclass(frozen=True)
class Where:
    """Names of `LAYOUTS` for operands and results.

    Attributes:
        taken: The operand whose memory the first result takes over.
    """

    operands: str = "contiguous"
    results: str = "contiguous"
    taken: int | None = None


def takeable(problem: Problem) -> tuple[int, ...]:
    """Operands that the result may be written over."""
    spec = OPS.get(problem.opcode)
    result = problem.output_types[:1]
    return tuple(
        index
        for index in (spec.inplace if spec else ())
        if index < len(problem.inputs)
        and (problem.types[index],) == result
        and not problem.constant[index]
    )


def check_numpy(problem: Problem, expected: list[Array], where: Where) -> None:
    """Compare numpy's engine, on memory that lies so, with ``expected``."""
    laid = _Laid.of(problem, where)
    binding = laid.binding
    with laid.refusing(), np.errstate(all="ignore"):
        with hidden_operands(binding):
            calls = prepare(KERNELS[problem.opcode], binding)

        def run() -> None:
            binding.scratch.reset()
            binding.scratch.take((1 << 14,), np.uint8).fill(0xFF)  # as others leave it
            for call in calls:
                call()

        _assert_all_near(laid.computed(run), expected, problem)


def check(library: Library, problem: Problem, expected: list[Array], where: Where) -> str:
    """Compare the native engine on 1, 2 and 3 threads with ``expected``.

    Where a run may have operands elsewhere, that gives the same bits.
    Gives how it computes the problem: "kernel", "calls", or "" if numpy has to.
    """
    laid = _Laid.of(problem, where)
    how, found = "", []
    with laid.refusing():
        with hidden_operands(laid.binding):
            how, items = _items(library, problem.opcode, laid.binding)
        found = [_computed(library, laid, items, threads) for threads in (1, 2, 3) if how]
        found += [_computed_elsewhere(library, laid, items)] if how else []
    if not found:
        return ""
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert one.tobytes() == other.tobytes(), "results depend on threads, or on addresses"
    _assert_all_near(found[0], expected, problem)
    return how


def has_kernel(library: Library, problem: Problem) -> bool:
    """Whether the problem is computed by a kernel where its operands lie contiguous."""
    inputs = tuple(None if operand is None else operand.copy() for operand in problem.inputs)
    outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in problem.output_types)
    with np.errstate(all="ignore"):
        return encode(problem.opcode, problem.binding(inputs, outputs), library.numbers) is not None


# -- memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Laid:
    """A problem whose operands and results lie somewhere."""

    problem: Problem
    where: Where
    places: list[Place]
    binding: Binding

    @classmethod
    def of(cls, problem: Problem, where: Where) -> _Laid:
        """Operands hold their numbers, results a pattern."""
        spec = OPS.get(problem.opcode)
        drawn = spec is not None and spec.random  # in the order of memory
        layout = "contiguous" if drawn else where.results
        places = [place(type_.shape, type_.dtype.storage, layout) for type_ in problem.output_types]
        inputs = [_placed(operand, where.operands) for operand in problem.inputs]
        if where.taken is not None:
            inputs[where.taken] = places[0].view
        laid = cls(
            problem,
            where,
            places,
            problem.binding(tuple(inputs), tuple(place.view for place in places)),
        )
        laid.fill()
        return laid

    def refusing(self) -> AbstractContextManager[None]:
        """A kernel may refuse results that lie where those of its instruction never do."""
        spec = OPS.get(self.problem.opcode)
        anywhere = spec is not None and spec.strided_output
        usual = anywhere or all(place.view.flags.c_contiguous for place in self.places)
        return nullcontext() if usual else suppress(ValueError)

    def spoil(self) -> None:
        """Forget all results, and the random numbers that were drawn."""
        for result in self.places:
            result.spoil()
        self.binding.random.restart()
        self.fill()

    def fill(self) -> None:
        """Give an operand that was overwritten its numbers back."""
        taken = self.where.taken
        if taken is not None:
            self.places[0].view[...] = self.problem.inputs[taken]

    def apart(self) -> list[int]:
        """The operands that change from run to run, and share memory with nothing else."""
        others = [*self.binding.inputs, *self.binding.outputs]
        return [
            index
            for index, operand in enumerate(self.binding.inputs)
            if operand is not None
            and operand.size
            and 0 not in operand.strides
            and not self.binding.constant[index]
            and sum(other is not None and np.may_share_memory(operand, other) for other in others)
            == 1
        ]

    def computed(self, run: Callable[[], object]) -> list[Array]:
        """The results of ``run``, which writes nothing else, and gives the same a second time."""
        around = [place.around() for place in self.places]
        run()
        results = [place.view.copy() for place in self.places]
        for before, result in zip(around, self.places, strict=True):
            assert before == result.around(), "something was written beside a result"
        pairs = zip(self.binding.inputs, self.problem.inputs, strict=True)
        for index, (pair, original) in enumerate(pairs):
            if pair is not None and original is not None and index != self.where.taken:
                assert pair.tobytes() == original.tobytes(), "an operand was written"
        spec = OPS.get(self.problem.opcode)
        if spec is None or not spec.random:
            self.fill()
            run()
            for again, first in zip(self.places, results, strict=True):
                assert again.view.tobytes() == first.tobytes(), "another run gives another result"
        return results


def _placed(array: Array | None, layout: str) -> Array | None:
    if array is None or 0 in array.strides:  # repeated: stays so
        return array
    view = place(array.shape, array.dtype, layout).view
    view[...] = array
    return view


# -- the native engine -----------------------------------------------------------------------------


def _computed(library: Library, laid: _Laid, items: list[Item], threads: int) -> list[Array]:
    """What items that were made of a laid problem compute."""
    laid.spoil()
    with hidden_operands(laid.binding):
        program = NativeProgram(library, items, laid.binding, threads)
    return laid.computed(program.run)


def _computed_elsewhere(library: Library, laid: _Laid, items: list[Item]) -> list[Array]:
    """The same, with operands that are not where they were when kernels were prepared."""
    laid.spoil()
    around = [place.around() for place in laid.places]
    run_lent(library, items, laid.binding, laid.apart())
    results = [place.view.copy() for place in laid.places]
    for before, result in zip(around, laid.places, strict=True):
        assert before == result.around(), "something was written beside a result"
    return results


def _items(library: Library, opcode: str, binding: Binding) -> tuple[str, list[Item]]:
    with np.errstate(all="ignore"):
        record = encode(opcode, binding, library.numbers)
        if record is not None:
            return "kernel", [record]
        binding.scratch.reset()
        calls = prepare(KERNELS[opcode], binding)
    records = [translate(call, library.numbers) for call in calls]
    found: list[Item] = [item for item in records if item is not None]
    return ("calls", found) if found and len(found) == len(records) else ("", [])


# -- comparing -------------------------------------------------------------------------------------


def _assert_all_near(results: list[Array], expected: list[Array], problem: Problem) -> None:
    for got, want, type_ in zip(results, expected, problem.output_types, strict=True):
        _assert_near(got, want, type_.dtype, problem)


def _assert_near(got: Array, want: Array, dtype: DType, problem: Problem) -> None:
    got, want = as_numbers(got, dtype), as_numbers(want, dtype)
    if is_exact(problem.opcode, dtype):
        np.testing.assert_array_equal(got, want)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    allowed = bounds(problem, want, _computed_in(problem, dtype))
    unknown = np.isposinf(allowed)
    limits = np.where(unknown, 0, allowed)
    near = np.isclose(got, want, rtol=0, atol=limits, equal_nan=True) | unknown
    if not near.all():
        first = tuple(np.argwhere(~near)[0])
        limit = np.broadcast_to(limits, want.shape)[first]
        raise AssertionError(
            f"{near.size - near.sum()} of {near.size} differ, at {first} {got[first]} is not "
            f"{want[first]}, give or take {limit}"
        )


def _computed_in(problem: Problem, dtype: DType) -> DType:
    """The type that results of ``dtype`` are computed in: that of operands, if that is narrower."""
    doubles = [type_.dtype is DType.FLOAT64 for type_ in problem.types if type_ is not None]
    return DType.FLOAT32 if dtype is DType.FLOAT64 and not any(doubles) else dtype
