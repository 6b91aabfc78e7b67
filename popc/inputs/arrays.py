"""The sources of the inputs of a run, and the destinations of its results."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from popc.inputs.arguments import load_file, pairs, read_arrays, read_stdin
from popc.inputs.images import IMAGE_SUFFIXES, read_image
from popc_runtime import Executable, TensorSpec
from popc_runtime.data.streams.files import RAW_SUFFIXES, open_samples
from popc_runtime.data.streams.seals import SealedFeed
from popc_runtime.data.words import labelled
from popc_runtime.errors import DeviceError, ModelError, ResourceError, UsageError
from popc_runtime.format import Array, LabelKind, StreamSpec
from popc_runtime.ground.frozen import frozen

__all__ = [
    "FeedKey",
    "drawn_names",
    "gather_inputs",
    "may_not_suit",
    "plan_outputs",
    "random_inputs",
    "write_outputs",
]


@frozen
class FeedKey:
    """The key that files are sealed with, and the number that tells feeds with one key apart."""

    key: bytes
    id: int = 0


_FEW: Final = 10  # integers that nothing is known of are less


def gather_inputs(
    items: Sequence[str],
    executable: Executable,
    steps: int = 1,
    pixels: str = "auto",
    key: FeedKey | None = None,
) -> list[dict[str, Array]]:
    """The inputs of every step, from ``NAME=SOURCE`` items (or .npz files with all of them).

    Samples for all steps may lie in a row, as sessions take them.  ``pixels``: see `read_image`.
    With ``key`` all of them are files of samples whose seals are verified.

    Raises:
        UsageError: an item is malformed, names no input, or has samples for another number of
            steps; or it has no seal that could be verified.
        ResourceError: a file cannot be read.
        StreamError: a sealed file was altered.
    """
    named: dict[str, Array | int] = {}  # an int is the seed of random values
    for item in items:
        if "=" not in item and item.endswith(".npz") and key is None:
            named.update(read_arrays(Path(item)))
    explicit = [item for item in items if "=" in item or not item.endswith(".npz") or key]
    known = {spec.name: spec for spec in executable.inputs}
    for name, source in pairs(explicit, "--input", known=known).items():
        if name not in known:
            raise UsageError(
                f"--input {name}={source}: the archive has no input {name!r}",
                hint=f"its inputs are {', '.join(map(str, executable.inputs))}",
            )
        if key is not None:
            named[name] = _verified(executable.stream(name), source, key)
            continue
        image = source.lower().endswith(IMAGE_SUFFIXES)
        named[name] = (
            read_image(Path(source), known[name], pixels)
            if image
            else _read(executable.stream(name), source)
        )
    ready = {
        name: value
        if name not in known or isinstance(value, int)
        else _by_step(value, known[name], executable.stream(name), steps)
        for name, value in named.items()
    }
    return [
        {
            name: _drawn(executable, known[name], value + step)
            if isinstance(value, int)
            else _of_step(value, known.get(name), step, steps)
            for name, value in ready.items()
        }
        for step in range(steps)
    ]


def _read(stream: StreamSpec, source: str) -> Array | int:
    name = stream.name
    if not source:
        raise UsageError(f"--input {name}=: expected NAME=SOURCE, such as {name}={name}.npy")
    if source == "-":
        array: Array = load_file(BytesIO(read_stdin()))
        return array
    if source.startswith("random:"):
        seed = source.removeprefix("random:")
        if not seed.isdecimal():
            raise UsageError(f"--input {name}={source}: expected random:SEED with a whole number")
        return int(seed)
    path = Path(source)
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        if name not in arrays:
            raise ResourceError(f"{path} has no array {name!r}, only {', '.join(arrays)}")
        return arrays[name]
    if path.suffix in RAW_SUFFIXES:
        return _of_run(open_samples(stream, path), stream)
    loaded: Array = _tensor(path) if path.suffix == ".pb" else load_file(path)
    return loaded


def _tensor(path: Path) -> Array:
    """The elements of a tensor of ONNX's test data."""
    from popc.frontend import tensor_of_file  # onnx, which other inputs do not need

    try:
        return tensor_of_file(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror or error}") from error
    except ModelError as error:
        raise ResourceError(
            f"{path} is not a tensor of ONNX: {error.message}",
            hint="onnx.save_tensor writes such files",
        ) from error


def _verified(stream: StreamSpec, source: str, key: FeedKey) -> Array:
    if not source.endswith((*RAW_SUFFIXES, ".npy")):
        raise UsageError(
            f"--input {stream.name}={source}: only files of samples are sealed",
            hint="`popc feed write --key FILE` writes them; --feed-key verifies all inputs",
        )
    samples = list(SealedFeed(source, key=key.key, id=key.id).samples(stream))
    empty = np.empty((0, *stream.shape), stream.dtype.storage)
    return _of_run(np.stack(samples) if samples else empty, stream)


def _of_run(samples: Array, stream: StreamSpec) -> Array:
    """Samples as a single run takes them: one that is alone has no dimension for several."""
    return samples[0] if len(samples) == 1 and stream.samples_per_step == 1 else samples


def _by_step(value: Array, spec: TensorSpec, stream: StreamSpec, steps: int) -> Array:
    """Samples in a row as what each step takes; other values as they are."""
    if value.ndim != len(stream.shape) + 1 or value.shape[1:] != stream.shape:
        return value
    wanted = steps * (prod(spec.shape) // max(prod(stream.shape), 1))
    if len(value) == wanted:
        return value.reshape((steps, *spec.shape) if steps > 1 else spec.shape)
    if steps == 1:
        return value  # the program says what it takes
    raise UsageError(
        f"input {spec.name!r} has {len(value)} samples, but {steps} steps take {wanted}",
        hint=f"a sample is {stream.dtype}{list(stream.shape)}",
    )


def _of_step(value: Array, spec: TensorSpec | None, step: int, steps: int) -> Array:
    if spec is not None and steps > 1 and value.shape == (steps, *spec.shape):
        row: Array = value[step]
        return row
    return value


def drawn_names(items: Sequence[str], executable: Executable) -> list[str]:
    """The inputs that ``items`` ask random values for."""
    known = [spec.name for spec in executable.inputs]
    explicit = [item for item in items if "=" in item]
    given = pairs(explicit, "--input", known=known)
    return [name for name, source in given.items() if source.startswith("random:")]


def random_inputs(executable: Executable, given: Collection[str]) -> dict[str, Array]:
    """Reproducible values of the inputs that are not ``given``."""
    missing = (spec for spec in executable.inputs if spec.name not in given)
    return {spec.name: _drawn(executable, spec, 0) for spec in missing}


def _drawn(executable: Executable, spec: TensorSpec, seed: int) -> Array:
    limit = executable.manifest.index_limits.get(spec.name, _FEW)
    if spec.label_kind:  # -1 and what is behind the labels stand for other words
        limit = min(limit, max(len(spec.labels), 1))
    return random_array(spec, seed, limit)


@contextmanager
def may_not_suit(drawn: Collection[str]) -> Iterator[None]:
    """Say of a run that fails that inputs are random, as those of the names ``drawn`` are."""
    try:
        yield
    except DeviceError as error:
        if not drawn:
            raise
        names = " and ".join(f"--input {name}=FILE" for name in drawn)
        raise type(error)(
            error.message,
            subject=error.subject,
            hint=f"random inputs may not suit it: give {names}",
            details=error.details,
        ) from error


def random_array(spec: TensorSpec, seed: int, limit: int = _FEW) -> Array:
    """Reproducible values of a tensor's type: normal for floats, 0 or 1 for bool.

    Integers are less than ``limit``, and than what their type holds.
    """
    generator = np.random.default_rng(seed)
    if spec.dtype.is_float:
        values: Array = generator.standard_normal(spec.shape)
        if spec.dtype.storage.kind == "u":  # bfloat16: the upper half of a float32
            bits = values.astype(np.float32).view(np.uint32) >> np.uint32(16)
            return bits.astype(np.uint16)
        return values.astype(spec.dtype.storage)
    if spec.dtype.value == "bool":
        return generator.integers(0, 2, spec.shape).astype(spec.dtype.storage)
    high = min(limit, int(np.iinfo(spec.dtype.storage).max) + 1)
    return generator.integers(0, high, spec.shape).astype(spec.dtype.storage)


def plan_outputs(
    items: Sequence[str], specs: Sequence[TensorSpec], *, force: bool
) -> dict[str, str]:
    """The file of each result that is to be written, checked before the run.

    Raises:
        UsageError: an item names no output.
        ResourceError: a file exists and ``force`` is not set, or a folder cannot be made.
    """
    known = [spec.name for spec in specs]
    targets: dict[str, str] = {}
    for item in items:
        if "=" not in item:
            folder = _made(Path(item))
            targets.update({name: str(folder / file) for name, file in _file_names(known).items()})
    explicit = [item for item in items if "=" in item]
    for name, path in pairs(explicit, "--output", known=known).items():
        if name not in known:
            raise UsageError(
                f"--output {name}={path}: the archive has no output {name!r}",
                hint=f"its outputs are {', '.join(map(str, specs))}",
            )
        targets[name] = path
    _refuse_targets(targets, force=force)
    return targets


def _refuse_targets(targets: Mapping[str, str], *, force: bool) -> None:
    """Refuse targets that would lose a result, or something older."""
    owners: dict[str, str] = {}
    for name, path in targets.items():
        other = owners.setdefault(path, name)
        if other != name and path != "-":
            raise UsageError(f"--output: {other!r} and {name!r} would both be written to {path}")
    if "-" in owners and sys.stdout is None:
        raise UsageError("- stands for standard output, which is closed", hint="give a file")
    existing = [path for path in owners if path != "-" and Path(path).exists()]
    if existing and not force:
        verb, them = ("exist", "them") if len(existing) > 1 else ("exists", "it")
        raise ResourceError(
            f"{', '.join(existing)} {verb} already", hint=f"--force replaces {them}"
        )


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def _file_names(names: Sequence[str]) -> dict[str, str]:
    """A file for each output, different ones even where case does not count.

    Names that can be file names as they are come first, so that only others are numbered.
    """
    files: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: _safe(name) != name):
        stem = candidate = _safe(name)
        number = 2
        while candidate.casefold() in taken:
            candidate, number = f"{stem}.{number}", number + 1
        taken.add(candidate.casefold())
        files[name] = f"{candidate}.npy"
    return files


def _safe(name: str) -> str:
    """``name`` as a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".") or "_"


def write_outputs(
    results: Mapping[str, Array], specs: Sequence[TensorSpec], targets: Mapping[str, str]
) -> dict[str, str]:
    """Write results as .npy; the files by output name.  Places of labels are written as strings.

    Raises:
        ResourceError: a file cannot be written.
    """
    with_words = {spec.name: spec for spec in specs if spec.label_kind is LabelKind.ELEMENTS}
    for name, path in targets.items():
        buffer, array = BytesIO(), results[name]
        if name in with_words:
            array = labelled(with_words[name], array).astype(str)
        np.save(buffer, array, allow_pickle=False)
        if path == "-":
            sys.stdout.buffer.write(buffer.getvalue())
            continue
        try:
            Path(path).write_bytes(buffer.getvalue())
        except OSError as error:
            raise ResourceError(f"cannot write {path}: {error.strerror}") from error
    return dict(targets)
