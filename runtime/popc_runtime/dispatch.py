"""The program for the shapes of what is given, or several runs that make up for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod

from popc_runtime.data.pieces import ARRAYS, BUFFERS, Pieces, element_bytes, shape_of
from popc_runtime.data.words import with_numbers
from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.format import FitMode, FitSpec, TensorSpec
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING, Any, TypeAlias
from popc_runtime.process.watch import time_left

if TYPE_CHECKING:
    from popc_runtime.process.run_lock import RunLock

__all__ = ["Dispatch"]

# Runs a program on its inputs.
_Run: TypeAlias = "Callable[[Any, Mapping[str, Any]], dict[str, Any]]"

_LISTED = 8  # programs that messages show


@frozen
class RunPiece:
    """A part of what is given along a dimension, and the size of the program that runs it."""

    start: int
    stop: int
    size: int


class Dispatch:
    """Chooses among the programs of one archive: executables."""

    def __init__(self, programs: Sequence[Any], fits: Sequence[FitSpec], turns: RunLock) -> None:
        self.programs = tuple(programs)
        self._fits = tuple(fits)
        self._turns = turns
        self._known: dict[tuple[tuple[str, tuple[int, ...] | None], ...], Any] = {}

    def program(self, given: Mapping[str, Any]) -> Any:
        """The program that takes what is given as it is; ``None`` if there is none.

        Raises:
            UsageError: it is plain bytes, and more than one program takes so many.
            InputMismatchError: something has no shape.
        """
        shapes = {name: _shape(name, value) for name, value in given.items()}
        if None in shapes.values():
            return self._by_bytes(given)
        key = tuple(shapes.items())
        if key not in self._known:
            found = [each for each in self.programs if _takes(each, shapes)]
            if not found:
                return self._by_bytes(given)
            if len(self._known) > len(self.programs):
                self._known.clear()
            self._known[key] = found[0]
        return self._known[key]

    def _by_bytes(self, given: Mapping[str, Any]) -> Any:
        """Bytes, and elements in a row, have no shape: their number has to tell."""
        found = []
        for each in self.programs:
            specs = _needed(each, given)
            if specs is not None and all(_may_be(given[spec.name], spec) for spec in specs):
                found.append(each)
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise UsageError(
                f"inputs without a shape could be those of {names}",
                hint="pass arrays, or memoryviews with a shape, or run one of model.programs",
            )
        return found[0] if found else None

    def required(self, given: Mapping[str, Any]) -> Any:
        """The program that takes what is given as it is.

        Raises:
            InputMismatchError: there is none.
            UsageError: see `program`.
        """
        found = self.program(given)
        if found is None:
            raise self._mismatch(given)
        return found

    def run(
        self,
        given: Mapping[str, Any],
        out: Mapping[str, Any],
        cast: str,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The results of one run, or of several where that was proven to be the same.

        Raises:
            InputMismatchError, UsageError, DeviceError: see `Executable.run`.
        """
        given = with_numbers(given, self.programs[0].inputs)  # all programs have the same labels
        found = self.program(given)
        if found is not None:
            results: dict[str, Any] = found.run(given, out=out, cast=cast, timeout=timeout)
            return results
        from popc_runtime.data.arrays import copied_to

        left = time_left(timeout)
        results = self._made_up(
            given, ARRAYS, lambda each, own: each.run(own, cast=cast, timeout=left())
        )
        return copied_to(out, results, self.programs[0].outputs)

    def run_buffers(self, given: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The same on plain memory; see `Executable.run_buffers`."""
        found = self.program(given)
        if found is not None:
            results: dict[str, Any] = found.run_buffers(given, timeout=timeout)
            return results
        left = time_left(timeout)
        return self._made_up(
            given, BUFFERS, lambda each, own: each.run_buffers(own, timeout=left())
        )

    def _made_up(self, given: Mapping[str, Any], pieces: Pieces, run: _Run) -> dict[str, Any]:
        has_shapes = all(shape_of(value) is not None for value in given.values())
        results = None
        if has_shapes and self._fits:
            parts = partial(self._fitted, dict(given), self.programs, self._fits, pieces, run)
            results = self._turns.in_one_call(parts)
        if results is None:
            raise self._mismatch(given)
        return results

    def _fitted(
        self,
        given: dict[str, Any],
        programs: Sequence[Any],
        fits: Sequence[FitSpec],
        pieces: Pieces,
        run: _Run,
    ) -> dict[str, Any] | None:
        """Results put together from pieces along the first of ``fits``, and so on."""
        if not fits:
            shapes = {name: shape_of(value) for name, value in given.items()}
            found = next((each for each in programs if _takes(each, shapes)), None)
            return None if found is None else run(found, given)
        fit, rest = fits[0], fits[1:]
        axes = {name: axis for name, axis in fit.inputs.items() if name in given}
        total = _common_size(given, axes)
        sizes = {size for each in programs if (size := _size(each, axes)) is not None}
        plan = None if total is None or total in sizes else _plan(total, sizes, fit.modes)
        if plan is None:
            return self._fitted(given, programs, rest, pieces, run)
        parts: list[dict[str, Any]] = []
        for piece in plan:
            own = dict(given)
            filled = piece.size > piece.stop - piece.start
            for name, axis in axes.items():
                fill = self._fill(fit, name) if filled else b""
                if fill and pieces.has_only(given[name], axis, fill):
                    raise _nothing_counts(name, fit)
                own[name] = pieces.cut(given[name], axis, piece.start, piece.stop, piece.size, fill)
            fitting = [each for each in programs if _size(each, axes) == piece.size]
            results = self._fitted(own, fitting, rest, pieces, run)
            if results is None:
                return None
            length = piece.stop - piece.start
            parts.append(
                {
                    name: pieces.cut(value, fit.outputs[name], 0, length, length)
                    if name in fit.outputs
                    else value
                    for name, value in results.items()
                }
            )
        return {
            name: pieces.join([part[name] for part in parts], fit.outputs.get(name, 0))
            for name in parts[0]
        }

    def _fill(self, fit: FitSpec, name: str) -> bytes:
        """An element that an input is filled up with, as it is stored; nothing to repeat the last.

        Raises:
            InputMismatchError: the type of the input does not hold the number.
        """
        if name not in fit.fills:
            return b""
        number = float(fit.fills[name])
        dtype = next(
            spec.dtype for each in self.programs for spec in each.inputs if spec.name == name
        )
        found = element_bytes(dtype, number)
        if found is None:
            raise InputMismatchError(f"input {name!r} of {dtype} cannot be filled with {number:g}")
        return found

    def _mismatch(self, given: Mapping[str, Any]) -> InputMismatchError:
        """The error that names the shapes that there are."""
        shapes = {name: shape_of(value) for name, value in given.items()}
        known = {spec.name for each in self.programs for spec in each.inputs}
        unknown = sorted(set(given) - known)
        if unknown:
            what = "; ".join(f"there is no input {name!r}" for name in unknown)
        else:
            listed = ", ".join(
                f"{name}: {'bytes' if shape is None else list(shape)}"
                for name, shape in shapes.items()
            )
            what = f"no program takes {listed or 'no inputs'}"
        lines = [f"{each.name} takes {', '.join(map(str, each.inputs))}" for each in self.programs]
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"... and {len(lines) - _LISTED} more"]
        fitted = "; ".join(
            f"{fit.dimension} may be {' or '.join(_TOLD[mode] for mode in fit.modes)}"
            for fit in self._fits
        )
        return InputMismatchError(
            what,
            details=tuple(lines),
            hint=fitted or "shapes are fixed when a model is compiled: compile it for these too",
        )


_TOLD = {
    FitMode.FILL: "smaller than a size that there is",
    FitMode.PAD: "smaller than a size that there is",
    FitMode.SPLIT: "made up of sizes",
}


def _shape(name: str, value: Any) -> tuple[int, ...] | None:
    try:
        return shape_of(value)
    except ValueError as error:  # ragged lists
        raise InputMismatchError(
            f"input {name!r}: {error}", subject=name, hint="pass an array of numbers"
        ) from None


def _nothing_counts(name: str, fit: FitSpec) -> InputMismatchError:
    """The error about a sample without positions that count: those filled up would count too."""
    return InputMismatchError(
        f"input {name!r} is {fit.fills[name]} everywhere along {fit.dimension} for a sample, so "
        "filling it up would change the results",
        hint=f"leave such samples out, or run a size of {fit.dimension} that there is",
    )


def _needed(program: Any, given: Mapping[str, Any]) -> list[TensorSpec] | None:
    """The inputs of a program that are given; ``None`` if others are, or one is missing."""
    specs = [spec for spec in program.inputs if spec.name in given]
    missing = [spec.name for spec in program.inputs if spec.name not in given]
    if len(specs) != len(given) or any(not program.stream(name).synthetic for name in missing):
        return None
    return specs


def _takes(program: Any, shapes: Mapping[str, tuple[int, ...] | None]) -> bool:
    specs = _needed(program, shapes)
    return specs is not None and all(shapes[spec.name] == spec.shape for spec in specs)


def _may_be(value: Any, spec: TensorSpec) -> bool:
    """True if a value has the shape of an input, as many elements in a row, or as many bytes."""
    shape = shape_of(value)
    if shape is None:
        return memoryview(value).nbytes == spec.nbytes
    return shape in (spec.shape, (prod(spec.shape),))


def _common_size(given: Mapping[str, Any], axes: Mapping[str, int]) -> int | None:
    """The size of a dimension, if all inputs that have it agree."""
    sizes: set[int | None] = set()
    for name, axis in axes.items():
        shape = shape_of(given[name])
        sizes.add(shape[axis] if shape is not None and axis < len(shape) else None)
    return sizes.pop() if len(sizes) == 1 else None


def _size(program: Any, axes: Mapping[str, int]) -> int | None:
    sizes = {spec.shape[axes[spec.name]] for spec in program.inputs if spec.name in axes}
    return sizes.pop() if len(sizes) == 1 else None


def _plan(total: int, sizes: set[int], modes: Sequence[FitMode]) -> list[RunPiece] | None:
    """Pieces that make up ``total``: as few as possible, as little filled up as possible."""
    pads, splits = FitMode.SPLIT not in modes or FitMode.PAD in modes, FitMode.SPLIT in modes
    above = min((size for size in sizes if size >= total), default=None)
    if total < 1:
        return None
    if pads and above is not None:
        return [RunPiece(0, total, above)]
    if not splits:
        return None
    return _pieces(total, sizes, pads=pads)


def _pieces(total: int, sizes: set[int], *, pads: bool) -> list[RunPiece] | None:
    found: list[RunPiece] = []
    start = 0
    for size in _steps(total, sizes, pads=pads):
        stop = min(start + size, total)
        found.append(RunPiece(start, stop, size))
        start = stop
    return found if start == total else None


def _steps(total: int, sizes: set[int], *, pads: bool) -> Iterator[int]:
    """The largest size that fits, again and again; at the end perhaps one that is filled up."""
    while total > 0:
        below = max((size for size in sizes if 0 < size <= total), default=None)
        if below is None or (pads and total < max(sizes)):
            below = min((size for size in sizes if size >= total), default=None) if pads else None
        if below is None:
            return
        yield below
        total -= below
