"""Inputs that a program keeps from run to run: caches of a decoder, states of a stream.

A pair is an input and the output that is its value for the next run.  An input that its output
makes longer is a cache: a variable as long as it may become, with the number of rows that count.
Caches of one program grow together.  Inputs that have an element for every row, such as masks,
are given for new rows alone, and are kept beside the caches.  An input that is held has no next
value: the host writes it, such as keys of what an encoder has read.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Final

from popc.frontend.bindings import Bindings
from popc.frontend.declared import DeclaredInput, Dim, OpenInput
from popc.frontend.load import LoadedModel
from popc.frontend.names import did_you_mean, listed, shown
from popc_runtime.errors import SpokenHint, UsageError
from popc_runtime.ground.frozen import frozen

__all__ = ["APPENDED", "NO_STATES", "StatePair", "States", "advise_on_caches", "find_states"]

APPENDED: Final = "append"  # in place of an output: the input is kept beside the caches
HELD: Final = "hold"  # likewise: the input keeps what the host writes
_MASKS: Final = ("attention_mask",)  # inputs of exporters that have a flag for every row
_TOKENS: Final = ("input_ids", "inputs_embeds")  # inputs of exporters with what is new
# What exporters call an input, and the output of its next value.
_NEXT: Final = (
    ("past_key_values", "present"),
    ("past_key_values", "present_key_values"),
    ("past", "present"),
)


@frozen
class StatePair:
    """An input and the output that is its next value; ``axis`` is the one that grows, if any."""

    past: str
    present: str
    axis: int | None = None


@frozen
class States:
    """The inputs of a model that its program keeps.

    Attributes:
        pairs: Inputs with the outputs that are their next values.
        appended: Inputs that have an element for every row of the caches, with that axis.
        held: Inputs that no run changes.
        name: What users call the number of rows: a dimension, or else an input.
        most: The most rows that caches can have.
        rows: The rows that a run adds.
        used: The names of bounds that were given for it.
    """

    pairs: tuple[StatePair, ...] = ()
    appended: Mapping[str, int] = field(default_factory=dict[str, int])
    held: tuple[str, ...] = ()
    name: str = ""
    most: int = 0
    rows: int = 0
    used: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The inputs that are variables."""
        return [*(pair.past for pair in self.pairs), *self.appended, *self.held]

    @property
    def results(self) -> list[str]:
        """The outputs that are next values."""
        return [pair.present for pair in self.pairs]


NO_STATES: Final = States()


def advise_on_caches(
    loaded: LoadedModel, hint: SpokenHint, inputs: Sequence[OpenInput]
) -> SpokenHint:
    """``hint`` on open dimensions, with what may be said instead of those that grow."""
    outputs = {info.name: info for info in loaded.proto.graph.output}
    for given in map(DeclaredInput.of, loaded.inputs):
        left = next((each.dims for each in inputs if each.name == given.name), ())
        present = _by_name(given.name, outputs) if left else ""
        after = (DeclaredInput.of(outputs[present]).dims or ()) if present else ()
        for axis in _open_axes(given, ()) if present else ():
            name = (given.dims or ())[axis] or given.name
            if not isinstance(left[axis], int) and name not in after[axis : axis + 1]:
                tail = "; or let the program keep the caches, which may have N rows then: "
                python = f'{hint}{tail}options={{"bounds": {{"{name}": N}}}}'
                return SpokenHint(python, f"{hint.command_line}{tail}--bound '{name}=N'")
    return hint


def find_states(loaded: LoadedModel, bindings: Bindings) -> tuple[States, Bindings]:
    """The inputs that the program keeps, and the bindings with sizes for them.

    Those are named by the option ``states``; or they are called as exporters call caches, and a
    bound is given for a dimension of theirs.

    Raises:
        UsageError: names do not fit the model, or nothing says how long a cache may become; lists
            every problem.
    """
    if not bindings.states and not bindings.bounds:
        return NO_STATES, bindings
    finder = _Finder(loaded, bindings)
    states = finder.found()
    finder.raise_if_any()
    if not states.names:
        return NO_STATES, bindings
    _refuse_others(bindings)
    return states, finder.sized(states)


def _refuse_others(bindings: Bindings) -> None:
    trains = bindings.training is not None and bindings.training.trains
    if trains or bindings.replicas > 1:
        what = "a program that trains" if trains else f"{bindings.replicas} replicas"
        raise UsageError(
            f"states are kept by a program for one sequence of runs, not by {what}",
            subject="states",
            hint="leave out the bound of the caches and the option states, or compile without",
        )


class _Finder:
    """One look at the inputs and outputs of a model; collects what is wrong."""

    def __init__(self, loaded: LoadedModel, bindings: Bindings) -> None:
        self._bindings = bindings
        self._inputs = {info.name: DeclaredInput.of(info) for info in loaded.inputs}
        self._outputs = {info.name: DeclaredInput.of(info) for info in loaded.proto.graph.output}
        self._symbols = dict(bindings.dims)
        for name, shape in bindings.shapes.items():
            dims = self._inputs[name].dims if name in self._inputs else None
            known = zip(dims or (), shape, strict=False)
            self._symbols.update((dim, size) for dim, size in known if isinstance(dim, str))
        self._problems: list[str] = []

    def raise_if_any(self) -> None:
        """Raise UsageError with all problems."""
        if not self._problems:
            return
        first, *others = self._problems
        raise UsageError(
            f"{len(self._problems)} problems with the states of the program" if others else first,
            subject="states",
            details=tuple(self._problems) if others else (),
            hint="a state is given as states.INPUT=OUTPUT; --bound DIMENSION=N says how long "
            "caches may become",
        )

    def found(self) -> States:
        """The states, as far as nothing is wrong."""
        named, appended, held = self._named()
        used, called = self._bounds(named)
        wanted = {**called, **named} if used else named
        pairs = [self._pair(past, present) for past, present in wanted.items()]
        if not pairs:
            if appended:
                self._problems.append(
                    f"states: {listed(appended)} would be kept beside caches, but there are none"
                )
            return States(held=held)
        if all(pair.axis is None for pair in pairs):
            return States(tuple(pairs), held=held)
        bounds = {self._bindings.bounds[name] for name in used}
        if len(bounds) > 1:
            self._problems.append(
                "bounds: caches grow together, but their bounds differ: "
                + ", ".join(f"{name}={self._bindings.bounds[name]}" for name in used)
            )
        masks = self._masks(pairs, appended)
        rows = self._rows(pairs, masks)
        most, name = max(bounds, default=0), used[0] if used else ""
        if used and rows > most:
            self._problems.append(f"bounds: {name}={most}, but a run adds {rows} rows to caches")
        return States(tuple(pairs), masks, held, name, most, rows, tuple(used))

    # -- pairs -------------------------------------------------------------------------------------

    def _named(self) -> tuple[dict[str, str], list[str], tuple[str, ...]]:
        """The pairs that the option names; the inputs that it appends to, and that it holds."""
        pairs: dict[str, str] = {}
        others: dict[str, list[str]] = {APPENDED: [], HELD: []}
        for pattern, target in self._bindings.states.items():
            inputs = [name for name in self._inputs if fnmatchcase(name, pattern)]
            if not inputs:
                guess = did_you_mean(pattern, list(self._inputs))
                self._problems.append(f"states: the model has no input {shown(pattern)!r}{guess}")
            for name in inputs:
                if name in self._bindings.values:
                    self._problems.append(f"states: input {name!r} is bound to a value already")
                elif self._inputs[name].kind != "tensor":
                    self._problems.append(f"states: input {name!r} is a {self._inputs[name].kind}")
                elif target in others:
                    others[target].append(name)
                else:
                    self._add_named(pairs, name, _filled(pattern, name, target))
        taken = list(pairs.values())
        for name in dict.fromkeys(name for name in taken if taken.count(name) > 1):
            self._problems.append(f"states: output {name!r} would be the next value of several")
        return pairs, others[APPENDED], tuple(others[HELD])

    def _add_named(self, pairs: dict[str, str], past: str, present: str) -> None:
        if present not in self._outputs:
            guess = did_you_mean(present, list(self._outputs))
            self._problems.append(
                f"states: {past}={present}: the model has no output {present!r}{guess}"
            )
        else:
            pairs[past] = present

    def _bounds(self, named: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The bounds that are meant for caches, and the pairs that names of exporters tell."""
        called = {
            name: present
            for name in self._inputs
            if name not in self._bindings.values
            and (present := _by_name(name, self._outputs))
            and self._open(name)
        }
        growing = {name: self._open(name) for name in {**called, **named}}
        symbols = {
            dim: name
            for name, axes in growing.items()
            for dim in (self._dims(name)[axis] for axis in axes)
            if isinstance(dim, str)
        }
        used = [name for name in self._bindings.bounds if name in symbols or name in growing]
        others: dict[str, str] = {}
        for name, given in self._inputs.items():
            for dim in given.dims or ():
                if isinstance(dim, str) and dim in self._bindings.bounds and dim not in symbols:
                    others.setdefault(dim, name)
        for dim, name in others.items():
            if dim not in self._symbols:
                self._problems.append(
                    f"bounds: {dim!r} is a dimension of input {name!r}, which is no cache"
                )
        return used, called

    def _pair(self, past: str, present: str) -> StatePair:
        axes = self._open(past)
        by_bound = [axis for axis in axes if self._dims(past)[axis] in self._bindings.bounds]
        result = self._outputs[present].dims or ()
        grows = [
            axis
            for axis in axes
            if len(result) == len(self._dims(past)) and result[axis] != self._dims(past)[axis]
        ]
        for found in (by_bound, grows, axes):
            if len(found) == 1:
                if not self._bindings.bounds:
                    self._problems.append(
                        f"input {past!r}, {self._inputs[past]}, is a cache: give the most rows "
                        f"that it may have, --bound {self._dims(past)[found[0]] or past}=N"
                    )
                return StatePair(past, present, found[0])
        return StatePair(past, present)

    # -- sizes -------------------------------------------------------------------------------------

    def _dims(self, name: str) -> tuple[Dim, ...]:
        return self._inputs[name].dims or ()

    def _open(self, name: str) -> list[int]:
        """The axes without a size, but for the first: that is the batch."""
        if name in self._bindings.shapes:
            return []
        return _open_axes(self._inputs[name], self._symbols)

    def _masks(self, pairs: Iterable[StatePair], named: Iterable[str]) -> dict[str, int]:
        """The inputs with an element for every row of the caches, with that axis."""
        rows = set(self._row_words(pairs))
        kept = {pair.past for pair in pairs}
        before = {self._dims(p.past)[p.axis] for p in pairs if p.axis is not None} - {None}
        masks: dict[str, int] = {}
        for name, given in self._inputs.items():
            if name in kept or name in self._bindings.values:
                continue
            axes = [
                axis
                for axis in range(len(given.dims or ()))
                if _mentions((given.dims or ())[axis], rows)
            ]
            if not axes and (name in _MASKS or name in named):
                axes = [len(given.dims or ()) - 1]
            if any(self._dims(name)[axis] in before for axis in axes):
                self._problems.append(
                    f"states: input {name!r}, {given}, is as long as the caches before a run, but "
                    "what is kept beside them is as long as they are behind it"
                )
            elif len(axes) == 1 and axes[0] > 0:
                masks[name] = axes[0]
            elif axes or name in named:
                self._problems.append(
                    f"states: input {name!r}, {given}, has no axis for the rows of the caches"
                )
        return masks

    def _row_words(self, pairs: Iterable[StatePair]) -> Iterator[str]:
        """The dimensions that tell how many rows caches have, before or after a run."""
        for pair in pairs:
            if pair.axis is None:
                continue
            for dims in (self._dims(pair.past), self._outputs[pair.present].dims or ()):
                dim = dims[pair.axis] if pair.axis < len(dims) else None
                if isinstance(dim, str):
                    yield dim

    def _rows(self, pairs: Iterable[StatePair], masks: Iterable[str]) -> int:
        """The rows that a run adds; 0 if that is not known."""
        past = {self._dims(p.past)[p.axis] for p in pairs if p.axis is not None}
        for pair in pairs:
            dims = self._outputs[pair.present].dims or ()
            if pair.axis is not None and pair.axis < len(dims):
                found = self._sum(dims[pair.axis], past)
                if found:
                    return found
        others = [n for n in self._inputs if n not in masks and n not in {p.past for p in pairs}]
        ordered = sorted(others, key=lambda name: name not in _TOKENS)
        for name in ordered:
            shape = self._bindings.shapes.get(name, self._dims(name))
            size = self._size(shape[1]) if len(shape) in (2, 3) else None
            if size:
                return size
        return 0

    def _sum(self, dim: Dim, without: set[Dim]) -> int | None:
        """The size of "past + new", without that of the past."""
        words = [word.strip() for word in dim.split("+")] if isinstance(dim, str) else []
        if len(words) < 2 or not any(word in without for word in words):
            return None
        sizes = [self._size(word) for word in words if word not in without]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _size(self, dim: Dim) -> int | None:
        if isinstance(dim, str):
            return int(dim) if dim.isdigit() else self._symbols.get(dim)
        return dim

    def sized(self, states: States) -> Bindings:
        """The bindings with sizes for the states, as far as nothing else has to be given."""
        dims, shapes = dict(self._bindings.dims), dict(self._bindings.shapes)
        axes = {pair.past: (pair.axis, states.most) for pair in states.pairs}
        axes |= {name: (axis, states.rows) for name, axis in states.appended.items()}
        for name, (axis, size) in axes.items():
            if axis is None or name in shapes or not size:
                continue
            dim = self._dims(name)[axis]
            if isinstance(dim, str):
                dims.setdefault(dim, size)
            elif dim is None:
                whole = [self._size(d) for d in self._dims(name)]
                whole[axis] = size
                shapes[name] = tuple(-1 if d is None else d for d in whole)
        bounds = {k: v for k, v in self._bindings.bounds.items() if k not in states.used}
        return replace(self._bindings, dims=dims, shapes=shapes, bounds=bounds)


def _open_axes(given: DeclaredInput, known: Iterable[str]) -> list[int]:
    symbols = set(known)
    return [
        axis
        for axis, dim in enumerate(given.dims or ())
        if axis > 0 and not isinstance(dim, int) and dim not in symbols
    ]


def _by_name(name: str, known: Container[str]) -> str:
    """The output that exporters call like the next value of an input; "" if there is none."""
    if "past" not in name:
        return ""
    candidates = (name.replace(past, present) for past, present in _NEXT)
    return next((each for each in candidates if each in known and each != name), "")


def _filled(pattern: str, name: str, target: str) -> str:
    """``target`` with the text that each * of ``pattern`` stands for in ``name``."""
    expression = ".*".join(map(re.escape, pattern.split("*"))).replace(".*", "(.*)")
    found = re.fullmatch(expression, name)
    for text in found.groups() if found else ():
        target = target.replace("*", text, 1)
    return target


def _mentions(dim: Dim, words: set[str]) -> bool:
    """True if a dimension is one of ``words``, or a sum with one of them."""
    if not isinstance(dim, str):
        return False
    return dim in words or any(word.strip() in words for word in dim.split("+"))
