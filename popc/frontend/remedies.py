"""The arguments with which a model can be compiled: tried before they are printed.

A model that leaves dimensions open is imported with some sizes, and a model whose shapes or
branches are decided by an input with values of that input, until something works or enough has been
tried.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from popc.frontend.bindings import Bindings
from popc.frontend.declared import OpenDim, OpenInput
from popc.frontend.known import KnownValues
from popc.frontend.load import LoadedModel
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import PopcError, SpokenHint
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = ["Attempt", "advise_on_inputs", "advise_on_shapes"]

# Imports the model with other bindings; raises PopcError if that is not possible.
Attempt: TypeAlias = Callable[[Bindings], object]

# Sizes of a dimension that are tried: what batches, sequences and images are.
_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 224, 256, 384, 512, 1024)
_STEPS: Final = (2, 4, 8, 16, 32, 64, 128)  # what networks divide sizes by
_ODD: Final = 37  # a size that no part of a network halves or multiplies without a rest
_SMALL: Final = 5  # one of which the same holds, like the one that is larger by 2
_MOST_ATTEMPTS: Final = 28  # imports before a hint is given: all sizes, and a few more
_MOST_NODES: Final = 20_000  # imported in all attempts together
_FEW: Final = 16  # elements of an input that decides something
_AXES: Final = {
    1: ("LENGTH",),
    2: ("BATCH", "LENGTH"),
    3: ("BATCH", "LENGTH", "FEATURES"),
    4: ("BATCH", "CHANNELS", "HEIGHT", "WIDTH"),
    5: ("BATCH", "CHANNELS", "DEPTH", "HEIGHT", "WIDTH"),
}
_CHANNELS: Final = (1, 3, 4)  # of images: grey, RGB, RGBA; by them the order of axes is told


class _Trials:
    """Attempts, of which there is a limited number."""

    def __init__(self, attempt: Attempt, loaded: LoadedModel) -> None:
        self._attempt = attempt
        nodes = max(len(loaded.proto.graph.node), 1)
        self._left = min(_MOST_ATTEMPTS, _MOST_NODES // nodes)

    def works(self, bindings: Bindings) -> bool | None:
        """True if the model can be imported; ``None`` if enough has been tried."""
        if self._left <= 0:
            return None
        self._left -= 1
        try:
            self._attempt(bindings)
        except PopcError:
            return False
        return True


# -- open dimensions -------------------------------------------------------------------------------


def advise_on_shapes(
    attempt: Attempt, loaded: LoadedModel, bindings: Bindings, open_: Sequence[OpenInput]
) -> SpokenHint:
    """Values for the dimensions that ``open_`` inputs leave open, with bounds if some were found.

    Dimensions that look like a batch are 1, all others words in capitals.
    """
    labels = _labels(open_)
    trials = _Trials(attempt, loaded)

    def works(size: int) -> bool | None:
        return trials.works(_with_sizes(bindings, open_, labels, size))

    bounds = _bounds(works) if any(labels.values()) else ""
    words = dict.fromkeys(label for label in labels.values() if label)
    tail = f"; {' and '.join(words)}: {bounds}" if bounds else ""
    return SpokenHint(_in_python(open_, labels) + tail, _on_command_line(open_, labels) + tail)


def _labels(open_: Sequence[OpenInput]) -> dict[OpenDim, str]:
    """The word for each open dimension; "" for those that are proposed to be 1."""
    labels: dict[OpenDim, str] = {}
    for given in open_:
        axes = _AXES.get(len(given.dims), ())
        if len(given.dims) == 4 and given.dims[-1] in _CHANNELS and given.dims[1] not in _CHANNELS:
            axes = ("BATCH", "HEIGHT", "WIDTH", "CHANNELS")
        for axis, dim in enumerate(given.dims):
            if isinstance(dim, int):
                continue
            word = axes[axis] if axes else f"DIM{axis}"
            if dim.symbol:
                word = re.sub(r"\W+", "_", dim.symbol).strip("_").upper() or word
            is_batch = (axis == 0 and len(given.dims) > 1) or _is_of_state(given, axis, open_)
            labels[dim] = "" if is_batch or labels.get(dim) == "" else word
    return labels


def _is_of_state(given: OpenInput, axis: int, open_: Sequence[OpenInput]) -> bool:
    """True for the batch of a recurrent state [layers, ?, units], beside an input that has one."""
    if len(given.dims) != 3 or axis != 1 or not all(isinstance(given.dims[n], int) for n in (0, 2)):
        return False
    return any(other is not given and not isinstance(other.dims[0], int) for other in open_)


def _bounds(works: Callable[[int], bool | None]) -> str:
    """The sizes that work, in words; "" if all or none of those that were tried do."""
    failed = 0
    for size in _SIZES:
        answer = works(size)
        if answer is None:
            return ""
        if answer:
            break
        failed = size
    else:
        return ""
    if size == 1:
        return _bounds_beyond_one(works)
    if works(size + 1):
        low, high = failed, size
        while high - low > 1:
            middle = (low + high) // 2
            answer = works(middle)
            if answer is None:
                break
            low, high = (low, middle) if answer else (middle, high)
        return f"at least {high}"
    for step in _STEPS:
        if step <= size and size % step == 0 and works(size + step):
            return f"a multiple of {step}, at least {size}"
    return f"such as {size}" if works(2 * size) else f"{size}"


def _bounds_beyond_one(works: Callable[[int], bool | None]) -> str:
    """The same where a single element does, which fits whatever others have to be."""
    if works(_ODD) is not False:
        return ""
    if works(_SMALL) and works(_SMALL + 2):
        low, high = _SMALL + 2, _ODD
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if works(middle) else (low, middle)
        return f"at most {low}"
    for step in _STEPS:
        if works(3 * step) and works(5 * step):
            return f"a multiple of {step}"
    return ""


def _with_sizes(
    bindings: Bindings, open_: Sequence[OpenInput], labels: Mapping[OpenDim, str], size: int
) -> Bindings:
    shapes = dict(bindings.shapes)
    for given in open_:
        shapes[given.name] = tuple(
            dim if isinstance(dim, int) else size if labels[dim] else 1 for dim in given.dims
        )
    return replace(bindings, shapes=shapes)


def _arguments(
    open_: Sequence[OpenInput], labels: Mapping[OpenDim, str]
) -> Iterator[tuple[str, str, tuple[int | str, ...]]]:
    """A value to give: ("dim", symbol, (size,)) or ("shape", input, sizes); sizes or words."""
    known: set[str] = set()
    for given in open_:
        symbols = [dim.symbol for dim in given.dims if isinstance(dim, OpenDim)]
        if all(symbols):
            for dim in given.dims:
                if isinstance(dim, OpenDim) and dim.symbol not in known:
                    known.add(dim.symbol)
                    yield "dim", dim.symbol, (labels[dim] or 1,)
            continue
        sizes = tuple(dim if isinstance(dim, int) else labels[dim] or 1 for dim in given.dims)
        yield "shape", given.name, sizes


def _on_command_line(open_: Sequence[OpenInput], labels: Mapping[OpenDim, str]) -> str:
    texts = [
        (option, f"{name}={','.join(map(str, sizes))}")
        for option, name, sizes in _arguments(open_, labels)
    ]
    return " ".join(f"--{option} {shlex.quote(text)}" for option, text in texts)


def _in_python(open_: Sequence[OpenInput], labels: Mapping[OpenDim, str]) -> str:
    shapes: list[str] = []
    dims: list[str] = []
    for option, name, sizes in _arguments(open_, labels):
        text = ", ".join(map(str, sizes))
        if option == "dim":
            dims.append(f'"{name}": {text}')
        else:
            shapes.append(f'"{name}": ({text}{"," if len(sizes) == 1 else ""})')
    parts = [f"shapes={{{', '.join(shapes)}}}"] if shapes else []
    parts += [f"dims={{{', '.join(dims)}}}"] if dims else []
    return ", ".join(parts)


# -- inputs that decide ----------------------------------------------------------------------------


@frozen
class _Decider:
    """An input, and constants that what follows from it is compared with."""

    tensor: Tensor
    compared: tuple[Array, ...]

    def values(self) -> Iterator[tuple[Array, bool]]:
        """Values to try, of the input's type, and whether the model itself knows them."""
        type_ = self.tensor.type
        tried: list[bytes] = []
        for number, constant in enumerate((*self.compared, *_usual(type_))):
            if constant.size not in (1, type_.size):
                continue
            with np.errstate(all="ignore"):
                array = np.asarray(constant).astype(_storage(type_.dtype))
            value = np.broadcast_to(
                array.reshape(type_.shape if array.size > 1 else ()), type_.shape
            )
            if value.tobytes() not in tried:
                tried.append(value.tobytes())
                yield value, number < len(self.compared)


def advise_on_inputs(
    attempt: Attempt,
    loaded: LoadedModel,
    bindings: Bindings,
    graph: Graph,
    known: KnownValues,
) -> SpokenHint | None:
    """The inputs to bind so that what decides a shape or a branch is known; ``None`` if none helps.

    Args:
        attempt: Imports the model with other bindings.
        loaded: The model.
        bindings: Those that it cannot be imported with.
        graph: As far as it was imported.
        known: The values that somebody has asked for, some of them in vain.
    """
    trials = _Trials(attempt, loaded)
    helps: list[tuple[str, list[object], bool]] = []
    for decider in _deciders(graph, known):
        name = decider.tensor.name
        shapes = {other: shape for other, shape in bindings.shapes.items() if other != name}
        for value, known_there in decider.values():
            bound = {**bindings.values, name: value}
            answer = trials.works(replace(bindings, values=bound, shapes=shapes))
            if answer:
                helps.append((name, value.reshape(-1).tolist(), known_there))
                break
            if answer is None:
                return None
    if not helps:
        return None
    name, numbers, is_known = helps[0]
    return _named(name, numbers, [other for other, *_ in helps[1:]], is_known=is_known)


def _named(name: str, value: list[object], others: Sequence[str], *, is_known: bool) -> SpokenHint:
    """The advice to bind ``name``; a value that the model does not know is an example."""
    listed = f" (or {', '.join(others)})" if others else ""
    decides = f"{name} decides it{listed}"
    python = repr(value[0] if len(value) == 1 else value)
    shell = ",".join(map(str, value)).lower() or "a .npy file of no numbers"
    if is_known and value:
        return SpokenHint(
            f'{decides}: bind={{"{name}": {python}}}',
            f"{decides}: --bind {shlex.quote(f'{name}={shell}')}",
        )
    return SpokenHint(
        f'{decides}: bind={{"{name}": VALUE}}, with a value such as {python}',
        f"{decides}: --bind {shlex.quote(f'{name}=VALUE')}, with a value such as {shell}",
    )


def _deciders(graph: Graph, known: KnownValues) -> list[_Decider]:
    """Small inputs that values which were asked for follow from."""
    inputs = set(graph.inputs)
    found: dict[Tensor, list[Array]] = {}
    for tensor in known.in_vain:
        if tensor.type.size > _FEW:
            continue
        reached, constants = _sources(tensor, inputs, known)
        for source in reached:
            # Numbers that steer are whole, or single; data of other kinds is there to be computed.
            if source.type.size <= _FEW and (
                source.type.size == 1 or not source.type.dtype.is_float
            ):
                found.setdefault(source, []).extend(constants)
    return [_Decider(tensor, tuple(constants)) for tensor, constants in found.items()]


def _sources(
    tensor: Tensor, inputs: set[Tensor], known: KnownValues
) -> tuple[list[Tensor], list[Array]]:
    """The inputs that a tensor follows from, and small constants on the way."""
    queue = dict.fromkeys([tensor])
    reached: list[Tensor] = []
    constants: list[Array] = []
    pending = [tensor]
    while pending:
        current = pending.pop()
        if current in inputs:
            reached.append(current)
        elif current.data is not None:
            if current.type.size == 1 and current.type.dtype is not DType.BFLOAT16:
                constants.append(current.data)
        else:
            new = [each for each in known.operands(current) if each not in queue]
            queue.update(dict.fromkeys(new))
            pending.extend(new)
    return reached, constants


def _usual(type_: TensorType) -> list[Array]:
    values: Sequence[object] = (True, False) if type_.dtype is DType.BOOL else (1, 2, 0)
    return [np.asarray(value) for value in values]


def _storage(dtype: DType) -> np.dtype[np.generic]:
    return np.dtype(np.float32) if dtype is DType.BFLOAT16 else dtype.storage
