"""Random numbers of ops that have sequences of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import popc
import popc_runtime
from popc_runtime.kernels.core.random_state import RandomState
from tests.placement.networks import SGD, layered


def test_numbered_sequences() -> None:
    state = RandomState(3)
    first = state.numbered(0).generator.random(4)
    assert not np.array_equal(first, state.numbered(1).generator.random(4))
    saved = state.save()
    following = state.numbered(0).generator.random(4)
    state.restore(saved)
    np.testing.assert_array_equal(state.numbered(0).generator.random(4), following)
    state.seed(3)
    np.testing.assert_array_equal(state.numbered(0).generator.random(4), first)
    state.seed(4)
    assert not np.array_equal(state.numbered(0).generator.random(4), first)


def test_instructions_of_one_op_share_a_seeded_sequence() -> None:
    numbered = RandomState(3).numbered(7)
    assert numbered.sequence(1) is numbered.sequence(1)
    assert numbered.legacy_sequence(1) is numbered.legacy_sequence(1)
    assert RandomState(3).sequence(1) is not RandomState(3).sequence(1)


def test_replicas_draw_differently() -> None:
    one, other = (RandomState(3, replica).numbered(0).generator.random(4) for replica in (0, 1))
    assert not np.array_equal(one, other)


def test_a_checkpoint_holds_them(tmp_path: Path) -> None:
    options = {
        "accumulation_factor": 4,
        "virtual_graph_mode": "manual",
        "num_ipus": 2,
        "enable_pipelining": True,
    }
    model = layered([(0, 0), (1, 1)], dropout=True)
    path = popc.compile(model, train=SGD, options=options).save(tmp_path / "m.popx")
    feeds = {"x": np.ones((4, 2, 8), np.float32)}
    program = popc_runtime.load(path)
    program.run(feeds)
    program.state.save_checkpoint(tmp_path / "state.safetensors")
    expected = program.run(feeds)
    again = popc_runtime.load(path)
    again.state.load_checkpoint(tmp_path / "state.safetensors")
    for name, value in again.run(feeds).items():
        np.testing.assert_array_equal(value, expected[name])
