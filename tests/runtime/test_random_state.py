"""Random states that nobody saved: they are refused, with the place, and change nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import popc_runtime
from popc_runtime.device.replicated_random import ReplicatedRandom
from popc_runtime.errors import CheckpointError, UsageError
from popc_runtime.ground.frozen import replace
from popc_runtime.groups import ReplicaShare
from popc_runtime.kernels.core.random_state import LegacySequence, RandomState
from popc_runtime.state.checkpoint import read_checkpoint, write_checkpoint
from tests.support.models import executable

_Path: TypeAlias = "tuple[str | int, ...]"
_LEGACY: Final = ("own", 0)
_NUMBERED: Final = ("numbered", "7")


def _state() -> RandomState:
    """All kinds of sequences, each in the middle of its numbers, and what kernels draw from."""
    state = RandomState(3)
    for sequence in (state, state.sequence(5), state.numbered(7)):
        sequence.generator.random(3, np.float32)
        assert sequence.source.all()
    state.rounding_bits(3)
    legacy = state.legacy_sequence(6)
    legacy.uniform((3,))
    state._own.reverse()  # the legacy one is the first
    return state


def _numbers(state: RandomState) -> list[bytes]:
    """What follows, without its being drawn from ``state``."""
    saved, other = state.save(), _state()
    other.restore(saved)
    legacy, own = other._own  # as above
    assert isinstance(legacy, LegacySequence)
    assert isinstance(own, RandomState)
    drawn = [item.generator.random(9) for item in (other, own, other.numbered(7))]
    return [item.tobytes() for item in (*drawn, legacy.uniform((9,)), other.rounding_bits(9))]


def _forged(saved: Any, path: _Path, value: object) -> Any:
    forged = copy.deepcopy(saved)
    parent = forged
    for key in path[:-1]:
        parent = parent[key]
    if value is _ABSENT:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return forged


_ABSENT: Final = object()
_PHILOX: Final[tuple[tuple[_Path, object], ...]] = (
    (("buffer_pos",), -(2**31) + 8),
    (("buffer_pos",), -1),
    (("buffer_pos",), 0),
    (("buffer_pos",), 5),
    (("buffer_pos",), 2**64),
    (("buffer_pos",), 1.5),
    (("buffer_pos",), "1"),
    (("buffer_pos",), None),
    (("buffer_pos",), True),
    (("buffer_pos",), _ABSENT),
    (("buffer",), [1, 2, 3]),
    (("buffer",), [1, 2, 3, 4, 5]),
    (("buffer",), 4),
    (("buffer", 1), 2**64),
    (("has_uint32",), 2),
    (("has_uint32",), -1),
    (("uinteger",), 2**32),
    (("state",), 3),
    (("state",), _ABSENT),
    (("state", "counter"), []),
    (("state", "counter", 3), -1),
    (("state", "key"), [1, 2, 3, 4]),
    (("state", "key", 0), [1]),
    (("bit_generator",), "MT19937"),
    (("bit_generator",), _ABSENT),
)
_MERSENNE: Final[tuple[tuple[_Path, object], ...]] = (
    (("state", "pos"), 625),
    (("state", "pos"), -1),
    (("state", "pos"), 2**31),
    (("state", "pos"), "0"),
    (("state", "key"), [1] * 623),
    (("state", "key"), [1] * 625),
    (("state", "key", 9), 2**32),
    (("has_gauss",), 2),
    (("gauss",), "0"),
    (("bit_generator",), "Philox"),
)
_SFC: Final[tuple[tuple[_Path, object], ...]] = (
    (("state", "state"), [1, 2, 3]),
    (("state", "state", 0), -1),
    (("has_uint32",), 2),
    (("uinteger",), -1),
    (("bit_generator",), "PCG64"),
)
_REST: Final[tuple[tuple[_Path, object], ...]] = (
    (("seed",), "3"),
    (("seed",), -3),
    (("seed",), 1.5),
    (("seed",), _ABSENT),
    (("drawn",), 7),
    (("drawn",), _ABSENT),
    (("rounding",), []),
    (("own",), []),
    (("own",), 2),
    (("own", 0), None),
    (("own", 1), []),
    (("numbered",), {}),
    (("numbered",), []),
    (("numbered",), _ABSENT),
    (("numbered", "07"), {}),
    (("numbered", "7"), None),
)
_FORGED: Final = (
    *((("drawn", *path), value) for path, value in _PHILOX),
    *(((*_NUMBERED, "drawn", *path), value) for path, value in _PHILOX[:1]),
    *((("own", 1, "drawn", *path), value) for path, value in _PHILOX[:1]),
    *(((*_LEGACY, *path), value) for path, value in _MERSENNE),
    *((("rounding", *path), value) for path, value in _SFC),
    *_REST,
)


def _assert_refused(state: RandomState, forged: object) -> None:
    before, addresses = state.save(), state.source.tolist()
    with pytest.raises(ValueError, match="random"):
        state.restore(forged)
    assert state.save() == before
    assert state.source.tolist() == addresses


@pytest.mark.parametrize(("path", "value"), _FORGED)
def test_forged_fields_are_refused(path: _Path, value: object) -> None:
    state = _state()
    following = _numbers(state)
    _assert_refused(state, _forged(state.save(), path, value))
    assert _numbers(state) == following


@pytest.mark.parametrize("forged", [None, 3, "state", [], {}])
def test_other_things_are_refused(forged: object) -> None:
    _assert_refused(_state(), forged)


@pytest.mark.parametrize("pos", range(1, 5))
def test_all_places_in_the_buffer_are_known(pos: int) -> None:
    saved = _state().save()
    _state().restore(_forged(saved, ("drawn", "buffer_pos"), pos))
    _state().restore(_forged(saved, (*_LEGACY, "state", "pos"), 156 * pos))


def _paths(value: object, path: _Path = ()) -> list[_Path]:
    items: Sequence[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:4]))
    return [path, *(below for key, content in items for below in _paths(content, (*path, key)))]


_PATHS: Final = _paths(_state().save())[1:]
_ANYTHING: Final = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-1, 700), st.floats(), st.text(max_size=3),
    st.lists(st.integers(), max_size=5), st.just({}), st.just(_ABSENT),
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(path=st.sampled_from(_PATHS), value=_ANYTHING)
def test_any_field_is_refused_or_draws(path: _Path, value: object) -> None:
    state = _state()
    before = state.save()
    try:
        state.restore(_forged(before, path, value))
    except ValueError:
        assert state.save() == before
    assert len(_numbers(state)) == 5


def test_replicas_are_refused_together() -> None:
    share = ReplicaShare(0, 1, 1)
    both = ReplicatedRandom([RandomState(3)], [RandomState(3, 1)], share)
    before = both.save()
    other = ReplicatedRandom([RandomState(4)], [RandomState(4, 1)], share).save()
    other["replicas"][1]["own"] = [None]
    less = {"replicas": other["replicas"][:1]}
    forged_ones: tuple[Any, ...] = (other, less, {"replicas": None}, [], None)
    for forged in forged_ones:
        with pytest.raises(ValueError, match=r"random|sequences"):
            both.restore(forged)
        assert both.save() == before


def test_a_seed_of_numpy_is_saved_as_a_number() -> None:
    saved = RandomState(np.int64(3)).save()  # type: ignore[arg-type]
    assert type(saved["seed"]) is int
    RandomState().restore(saved)


def test_a_seed_that_nothing_is_drawn_from_may_be_any() -> None:
    state = RandomState()
    state.restore(RandomState(-1).save())
    assert state.save()["seed"] == -1


# -- of a program ----------------------------------------------------------------------------------


def _noisy() -> onnx.ModelProto:
    """y = x + uniform numbers."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 5]) for name in "xy")
    graph = helper.make_graph(nodes, "noisy", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _drawn(program: popc_runtime.Executable) -> bytes:
    found: bytes = program.run(x=np.zeros((4, 5), np.float32))["y"].tobytes()
    return found


def _by_checkpoint(program: popc_runtime.Executable, forged: Any, folder: Path) -> None:
    path = folder / "forged.safetensors"
    program.state.save_checkpoint(path)
    write_checkpoint(path, replace(read_checkpoint(path), random=forged))
    program.state.load_checkpoint(path)


def _by_state(program: popc_runtime.Executable, forged: Any, folder: Path) -> None:
    del folder
    program.state.set_random_state(forged)


@pytest.mark.parametrize(
    ("give", "error"), [(_by_checkpoint, CheckpointError), (_by_state, UsageError)]
)
@pytest.mark.parametrize(
    ("path", "value", "detail"),
    [
        (("drawn", "buffer_pos"), -(2**31) + 8, "random.drawn.buffer_pos is -2147483640, not a"),
        (("drawn", "bit_generator"), "MT19937", "random.drawn is a state of 'MT19937', not of"),
        (("own",), [1], "random has 1 own sequences, not 0"),
        (("numbered",), [], "random.numbered is not of type dict"),
    ],
)
def test_programs_refuse_forged_states(
    give: Callable[[popc_runtime.Executable, Any, Path], None],
    error: type[Exception],
    path: _Path,
    value: object,
    detail: str,
    tmp_path: Path,
) -> None:
    program = executable(_noisy(), tmp_path)
    _drawn(program)
    saved = program.state.random_state()
    following = _drawn(program)
    program.state.set_random_state(saved)
    with pytest.raises(error, match="damaged or belong") as raised:
        give(program, _forged(saved, path, value), tmp_path)
    assert detail in str(raised.value)
    assert "hint: " in str(raised.value)
    assert _drawn(program) == following
