"""A training that keeps a state of its own beside the weights: counters, averages, in any body."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from tests.replication.models import compiled, graphcore

_RATE: Final = 0.01
_TRAIN: Final = {
    "loss": {"type": "identity", "input": "loss"},
    "optimizer": {"type": "sgd", "learning_rate": _RATE},
}
_SAMPLES: Final = np.random.default_rng(0).standard_normal((12, 2, 3)).astype(np.float32)
_PIPELINE: Final = {"num_ipus": 2, "virtual_graph_mode": "auto", "enable_pipelining": True}
_OFF_CHIP: Final = {"storage": "off_chip", "min_elements_for_off_chip": 0}

_AVERAGED = graphcore(
    "g (float[2,3] x) => (float loss, int32 n) "
    "<float[3] w = {1.0, 1.0, 1.0}, int32 steps = {0}, float[3] ema = {0.0, 0.0, 0.0}> { "
    "one = Constant <value = int32 {1}> () k = Add (steps, one) "
    "n = ai.graphcore.CopyVarUpdate (steps, k) "
    "h = Mul (x, w) a = ReduceMean <axes = [0], keepdims = 0> (x) "
    "half = Constant <value_float = 0.5> () e1 = Mul (ema, half) e2 = Mul (a, half) "
    "e3 = Add (e1, e2) e = ai.graphcore.CopyVarUpdate (ema, e3) "
    "d = Sub (h, e) q = Mul (d, d) loss = ReduceSum <keepdims = 0> (q) }"
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batches_per_step": 3},
        {"accumulation_factor": 3},
        {"accumulation_factor": 3, "batches_per_step": 2},
        {"accumulation_factor": 3, "batches_per_step": 2, "auto_recomputation": "standard"},
        {"accumulation_factor": 6, **_PIPELINE},
        {"accumulation_factor": 3, "weight_tensor_location": _OFF_CHIP},
        {"batch_serialization_factor": 2},
        {"batch_serialization_factor": 2, "batch_serialization_transform_context": "fwd"},
    ],
    ids=str,
)
def test_state_counts_micro_batches(options: dict[str, Any], tmp_path: Path) -> None:
    """The weight gets the gradients of a batch at once, the state changes in every micro-batch."""
    program = compiled(_AVERAGED, tmp_path, _TRAIN, anchors={"n": "all"}, **options)
    dims = [options.get(key, 1) for key in ("batches_per_step", "accumulation_factor")]
    steps = _SAMPLES.reshape(-1, *(size for size in dims if size > 1), 2, 3)
    found = [program.run(x=step) for step in steps]
    losses, state = _averaged(dims[1])
    got = np.concatenate([np.ravel(item["loss"]) for item in found])
    np.testing.assert_allclose(got, losses, rtol=1e-4)
    counts = np.concatenate([np.ravel(item["n"]) for item in found])
    np.testing.assert_array_equal(counts, np.arange(len(_SAMPLES)) + 1)
    for name, value in program.state.read().items():
        np.testing.assert_allclose(value, state[name], rtol=1e-4, err_msg=name)


def _averaged(factor: int) -> tuple[list[float], dict[str, Any]]:
    w, ema, gradient = np.ones(3), np.zeros(3), np.zeros(3)
    losses: list[float] = []
    for count, x in enumerate(_SAMPLES.astype(np.float64), start=1):
        ema = ema / 2 + x.mean(0) / 2
        d = x * w - ema
        losses.append(float((d * d).sum()))
        gradient += (2 * d * x).sum(0)
        if count % factor == 0:
            w, gradient = w - _RATE * gradient, np.zeros(3)
    return losses, {"w": w, "ema": ema, "steps": len(_SAMPLES)}


_NESTED = graphcore(
    "g (float[2,3] x) => (float loss) "
    "<float[3] w = {1.0, 1.0, 1.0}, float[3] acc = {0.0, 0.0, 0.0}, float n = {0.0}> { "
    "three = Constant <value_int = 3> () yes = Constant <value = bool {1}> () h = Mul (x, w) "
    "e = Loop (three, yes, h) <body = b (int64 i, bool c, float[2,3] t) => "
    "(bool d, float[2,3] t2) { t2 = Add (t, acc) m = ReduceMean <axes = [0], keepdims = 0> (t) "
    "q = Add (acc, m) u = ai.graphcore.CopyVarUpdate (acc, q) d = Identity (c) }> "
    "s = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> () "
    "up = Greater (s, zero) "
    "f = If (up) <then_branch = p () => (float[2,3] a) { one = Constant <value_float = 1.0> () "
    "k = Add (n, one) v = ai.graphcore.CopyVarUpdate (n, k) a = Mul (e, e) }, "
    "else_branch = r () => (float[2,3] z) { z = Mul (e, h) }> "
    "loss = ReduceSum <keepdims = 0> (f) }"
)


@pytest.mark.parametrize("recomputation", ["none", "standard"])
def test_gradients_flow_through_the_state_of_bodies(recomputation: str, tmp_path: Path) -> None:
    program = compiled(_NESTED, tmp_path, _TRAIN, auto_recomputation=recomputation)
    w, acc, n = np.ones(3), np.zeros(3), 0
    for x in _SAMPLES[:4].astype(np.float64):
        loss, after = _nested(w, x, acc)
        np.testing.assert_allclose(program.run(x=x.astype(np.float32))["loss"], loss, rtol=1e-4)
        steps = 1e-5 * np.eye(3)
        slopes = [_nested(w + h, x, acc)[0] - _nested(w - h, x, acc)[0] for h in steps]
        w, acc, n = w - _RATE * np.array(slopes) / 2e-5, after, n + int(x.sum() > 0)
    state = program.state.read()
    np.testing.assert_allclose(state["w"], w, rtol=1e-4)
    np.testing.assert_allclose(state["acc"], acc, rtol=1e-4)
    assert state["n"] == n


def _nested(w: Array, x: Array, acc: Array) -> tuple[float, Array]:
    h = t = x * w
    for _ in range(3):
        t, acc = t + acc, acc + t.mean(0)
    return float((t * (t if x.sum() > 0 else h)).sum()), acc
