"""Memory that runs out and disks that are full, at every moment: nothing is half done."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc.trained.export import export_onnx
from popc_runtime.errors import CorruptArchiveError, PopcError, ResourceError
from popc_runtime.format import ArchiveFile, digests
from tests.native.children import Tell, in_a_child
from tests.native.damaged import parts_of
from tests.support.models import affine, counter_loop

_HARMLESS = 100  # allocations in a row whose failure changes nothing: there are no others
_FEEDS = {"x": np.ones((2, 3), np.float32)}
_needs_hook = pytest.mark.skipif(
    importlib.util.find_spec("_testcapi") is None, reason="this Python has no hook for allocations"
)


@pytest.fixture(scope="module")
def trained() -> bytes:
    """An archive with variables."""
    return popc.compile(affine(), options={"constant_weights": False}).to_bytes()


# -- memory ----------------------------------------------------------------------------------------


def _use(archive: bytes, engine: str) -> list[float]:
    executable = popc_runtime.load(archive, engine=engine, threads=1)
    return [float(value) for value in executable.run(_FEEDS)["y"].reshape(-1)]


def _fails(archive: bytes, engine: str, number: int) -> bool:
    """Load, bind and run without one allocation; whether that raised what it may raise."""
    import _testcapi

    _testcapi.set_nomemory(number, number + 1)
    try:
        _use(archive, engine)
    except (MemoryError, PopcError):
        return True
    except RuntimeError as error:
        if str(error) != "can't allocate lock":  # Python's own words
            raise
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


def _without_some(archive: bytes, engine: str, step: int, tell: Tell) -> str:
    """Load, bind and run, while one allocation after the other fails, every so manyth.

    It ends where all are passed, or, if ``step`` is above 1, after a few.
    """
    # That of Python 3.11 does not expect to get no memory.
    digests._small = lambda: hashlib.sha256  # type: ignore[assignment]
    expected = _use(archive, engine)
    number = harmless = 0
    while harmless < _HARMLESS and (step == 1 or number <= 40 * step):
        tell(number, f"allocation {number}")
        harmless = 0 if _fails(archive, engine, number) else harmless + 1
        if _use(archive, engine) != expected:
            return "results are others afterwards"
        number += step
    return ""


@_needs_hook
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_python_runs_out_of_memory(trained: bytes, engine: str) -> None:
    complaint, _ = in_a_child(lambda tell: _without_some(trained, engine, 97, tell))
    assert not complaint


@_needs_hook
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_python_runs_out_of_memory_at_every_allocation(trained: bytes) -> None:
    complaint, _ = in_a_child(lambda tell: _without_some(trained, "auto", 1, tell))
    assert not complaint


# -- disks -----------------------------------------------------------------------------------------


@contextmanager
def _room_for(count: int) -> Iterator[None]:
    """Let every file end after so many bytes: the system refuses the write that goes beyond."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _writers(archive: bytes, folder: Path) -> dict[str, Callable[[Path], object]]:
    executable = popc_runtime.load(archive)
    compiled = popc.compile(affine())
    path = folder / "trained.popx"
    path.write_bytes(archive)
    return {
        "archive": lambda target: compiled.save(target, force=True),
        "checkpoint": executable.state.save_checkpoint,
        "model": lambda target: export_onnx(path, target, state=executable, force=True),
    }


@pytest.mark.parametrize("what", ["archive", "checkpoint", "model"])
def test_a_full_disk(trained: bytes, tmp_path: Path, what: str) -> None:
    write = _writers(trained, tmp_path)[what]
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "file"
    write(target)
    whole = target.read_bytes()
    for room in {0, 1, *range(0, len(whole), max(1, len(whole) // 23)), len(whole) - 1}:
        target.write_bytes(b"what was there")
        with _room_for(room), pytest.raises(ResourceError, match="cannot write"):
            write(target)
        assert target.read_bytes() == b"what was there"
        assert list(folder.iterdir()) == [target]
    with _room_for(len(whole)):
        write(target)
    assert target.read_bytes() == whole


# -- documents in archives -------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (None, inf, -inf, -1, 1 << 70, "x", [], {}, [None], 1e308)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield from _paths(item, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", ["cycles", "report"])
def test_members_that_are_not_what_they_should_be(name: str) -> None:
    from popc.cost import decode_report
    from popc_runtime.cycles.execution import CycleProfile

    def read(data: bytes) -> None:
        if name == "report":
            decode_report(data)
        else:
            str(CycleProfile(data).report([(3, 1)] * 10, 2))

    options = {"instrument_with_hardware_cycle_counter": True, "cost_report": True}
    with ArchiveFile.open(popc.compile(counter_loop(), options=options).to_bytes()) as archive:
        document = json.loads(bytes(archive.read(name)))
    read(json.dumps(document).encode())
    paths = list(_paths(document))
    refused = 0
    for number, path in enumerate(paths[:: max(1, len(paths) // 40)]):
        for value in (_VALUES[number % len(_VALUES)], _VALUES[(7 * number + 1) % len(_VALUES)]):
            try:
                read(json.dumps(_changed(document, path, value)).encode())
            except CorruptArchiveError:
                refused += 1
    assert refused > 10


def test_a_damaged_model_is_not_exported(trained: bytes, tmp_path: Path) -> None:
    parts = parts_of(trained)
    model = parts.contents["model"]
    damaged = model[: len(model) // 2] + b"\xff" * 9 + model[len(model) // 2 :]
    path = tmp_path / "damaged.popx"
    path.write_bytes(parts.joined(**{**parts.contents, "model": damaged}))
    with pytest.raises(CorruptArchiveError, match="the model in the archive cannot be read"):
        export_onnx(path, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
