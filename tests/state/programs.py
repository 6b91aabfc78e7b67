"""Models that keep a state from run to run, and what they compute, in plain numpy.

Every model takes x [2, 3] and returns y.  A step function gets the values of the variables as they
were, and x, and returns y and the variables that change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from popc_runtime.format import Array
from tests.replication.models import graphcore

__all__ = ["PROGRAMS", "Program", "expected", "samples"]

_Values: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Program:
    """A model: what its variables start with, its nodes, its step in numpy, and its functions."""

    name: str
    state: _Values
    body: str
    step: Callable[[_Values, Array], tuple[Array, _Values]]
    functions: str = ""

    def model(self) -> onnx.ModelProto:
        """The model, with the variables as initializers."""
        model = graphcore(f"g (float[2,3] x) => (float y) {{ {self.body} }}" + self.functions)
        for name, value in self.state.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        return model


def samples(count: int) -> Array:
    """Inputs [count, 2, 3]: quarters, so that sums of them are exact."""
    rng = np.random.default_rng(7)
    return rng.integers(-8, 9, (count, 2, 3)).astype(np.float32) / 4


def expected(program: Program, inputs: Array) -> tuple[Array, dict[str, Array]]:
    """All y, one after the other, and the state in the end."""
    state = dict(program.state)
    results: list[Array] = []
    for x in inputs:
        y, new = program.step(state, x)
        results.append(y)
        state.update(new)
    return np.stack(results), state


def _f(*shape: int, value: float = 0.0) -> Array:
    return np.full(shape, value, np.float32)


_INT = np.zeros((), np.int64)


def _counter(s: _Values, x: Array) -> tuple[Array, _Values]:
    new = s["acc"] + x
    return new, {"acc": new}


def _old(s: _Values, x: Array) -> tuple[Array, _Values]:
    return s["acc"].T * 2, {"acc": s["acc"] + x}


def _delay(s: _Values, x: Array) -> tuple[Array, _Values]:
    return x - s["acc"], {"acc": x}


def _constant(s: _Values, x: Array) -> tuple[Array, _Values]:
    return x + s["acc"], {"acc": _f(2, 3, value=5)}


def _aside(s: _Values, x: Array) -> tuple[Array, _Values]:
    return x + 1, {"n": s["n"] + np.int32(2)}


def _chain(s: _Values, x: Array) -> tuple[Array, _Values]:
    h = np.maximum(x, 0) + s["first"]
    k = h * s["second"]
    y = np.abs(k.T @ x) + s["third"]
    return y, {"first": h, "second": k * np.float32(0.125), "third": y * np.float32(0.0625)}


def _swap(s: _Values, x: Array) -> tuple[Array, _Values]:
    return s["a"] - s["b"], {"a": s["b"], "b": s["a"] + x}


def _same(s: _Values, x: Array) -> tuple[Array, _Values]:
    new = s["a"] + x
    return new - s["b"], {"a": new, "b": new}


def _average(s: _Values, x: Array) -> tuple[Array, _Values]:
    new = s["ema"] * np.float32(0.5) + x.sum(dtype=np.float32) * np.float32(0.25)
    return x - new, {"ema": new}


def _cache(s: _Values, x: Array) -> tuple[Array, _Values]:
    cache = s["cache"].copy()
    cache[s["pos"]] = x
    return cache.sum(0), {"cache": cache, "pos": (s["pos"] + 1) % 4}


def _branch(s: _Values, x: Array) -> tuple[Array, _Values]:
    if x.sum() > 0:
        return s["n"] * x, {"n": s["n"] + 1, "last": x}
    return x, {"total": s["total"] + x}


def _loop(s: _Values, x: Array) -> tuple[Array, _Values]:
    acc, total = s["acc"], x
    for _ in range(3):
        total = total + acc
        acc = acc * np.float32(0.5) + x
    return total - s["acc"], {"acc": acc}


def _nested(s: _Values, x: Array) -> tuple[Array, _Values]:
    n, total, index = s["n"], s["total"], 0
    while True:
        if n > 2:
            total = total + x
        n = n + 1
        index += 1
        if not (index < 4 and n < 5.5):
            break
    return total * 1, {"n": n - 3 * (n > 5), "total": total}


def _scan(s: _Values, x: Array) -> tuple[Array, _Values]:
    row, rows = s["row"], []
    for element in x:
        row = row + element
        rows.append(row * 2)
    return np.stack(rows), {"row": row}


def _norm(s: _Values, x: Array, *, times: int = 1, degrees: int = 0) -> tuple[Array, _Values]:
    y, mean, var = x, s["mean"], s["var"]
    for _ in range(times):
        average, variance, unbiased = y.mean(0), y.var(0), y.var(0, ddof=degrees)
        y = (y - average) / np.sqrt(variance + np.float32(1e-5)) * s["scale"] + s["bias"]
        mean = mean * np.float32(0.9) + average * np.float32(0.1)
        var = var * np.float32(0.9) + unbiased * np.float32(0.1)
    return y, {"mean": mean, "var": var}


def _norm_state() -> _Values:
    return {
        "scale": np.array([1.0, 0.5, 2.0], np.float32),
        "bias": np.array([0.0, 1.0, -1.0], np.float32),
        "mean": _f(3),
        "var": _f(3, value=1),
    }


_NORM = "BatchNormalization <training_mode = 1>"
_FUNCTION = """
<domain: "local", opset_import: ["": 17, "ai.graphcore": 1]>
count (state, x) => (y) { more = Add (state, x) y = ai.graphcore.CopyVarUpdate (state, more) }
"""

PROGRAMS = (
    Program(
        "counter",
        {"acc": _f(2, 3)},
        "new = Add (acc, x) y = ai.graphcore.CopyVarUpdate (acc, new)",
        _counter,
    ),
    Program(
        "old_value",
        {"acc": _f(2, 3, value=1)},
        "two = Constant <value_float = 2.0> () new = Add (acc, x) "
        "u = ai.graphcore.CopyVarUpdate (acc, new) t = Transpose (acc) y = Mul (t, two)",
        _old,
    ),
    Program(
        "delay",
        {"acc": _f(2, 3, value=1)},
        "u = ai.graphcore.CopyVarUpdate (acc, x) y = Sub (x, acc)",
        _delay,
    ),
    Program(
        "constant",
        {"acc": _f(2, 3), "five": _f(2, 3, value=5)},
        "u = ai.graphcore.CopyVarUpdate (acc, five) y = Add (x, acc)",
        _constant,
    ),
    Program(
        "aside",
        {"n": np.zeros(1, np.int32), "two": np.full(1, 2, np.int32)},
        "one = Constant <value_float = 1.0> () y = Add (x, one) "
        "more = Add (n, two) u = ai.graphcore.CopyVarUpdate (n, more)",
        _aside,
    ),
    Program(
        "chain",  # long enough to be divided among chips
        {"first": _f(2, 3, value=1), "second": _f(2, 3, value=2), "third": _f(3, 3)},
        "half = Constant <value_float = 0.125> () quarter = Constant <value_float = 0.0625> () "
        "r = Relu (x) h = Add (r, first) u = ai.graphcore.CopyVarUpdate (first, h) "
        "k = Mul (h, second) l = Mul (k, half) v = ai.graphcore.CopyVarUpdate (second, l) "
        "t = Transpose (k) m = MatMul (t, x) n = Abs (m) y = Add (n, third) "
        "o = Mul (y, quarter) w = ai.graphcore.CopyVarUpdate (third, o)",
        _chain,
    ),
    Program(
        "swap",
        {"a": _f(2, 3, value=1), "b": _f(2, 3, value=2)},
        "u = ai.graphcore.CopyVarUpdate (a, b) more = Add (a, x) "
        "v = ai.graphcore.CopyVarUpdate (b, more) y = Sub (a, b)",
        _swap,
    ),
    Program(
        "same",
        {"a": _f(2, 3), "b": _f(2, 3, value=2)},
        "more = Add (a, x) u = ai.graphcore.CopyVarUpdate (a, more) "
        "v = ai.graphcore.CopyVarUpdate (b, u) y = Sub (u, b)",
        _same,
    ),
    Program(
        "average",
        {"ema": _f()},
        "half = Constant <value_float = 0.5> () quarter = Constant <value_float = 0.25> () "
        "sum = ReduceSum <keepdims = 0> (x) old = Mul (ema, half) own = Mul (sum, quarter) "
        "new = Add (old, own) u = ai.graphcore.CopyVarUpdate (ema, new) y = Sub (x, u)",
        _average,
    ),
    Program(
        "cache",
        {"cache": _f(4, 2, 3), "pos": _INT},
        "one = Constant <value_int = 1> () four = Constant <value_int = 4> () "
        "axes = Constant <value_ints = [0]> () place = Unsqueeze (pos, axes) "
        "index = Unsqueeze (place, axes) row = Unsqueeze (x, axes) "
        "filled = ScatterND (cache, index, row) "
        "c = ai.graphcore.CopyVarUpdate (cache, filled) "
        "y = ReduceSum <keepdims = 0> (c, axes) "
        "next = Add (pos, one) round = Mod (next, four) "
        "p = ai.graphcore.CopyVarUpdate (pos, round)",
        _cache,
    ),
    Program(
        "branch",
        {"n": _f(), "last": _f(2, 3), "total": _f(2, 3)},
        "zero = Constant <value_float = 0.0> () sum = ReduceSum <keepdims = 0> (x) "
        "up = Greater (sum, zero) "
        "y = If (up) <then_branch = up () => (float[2,3] a) { "
        "one = Constant <value_float = 1.0> () more = Add (n, one) "
        "u = ai.graphcore.CopyVarUpdate (n, more) w = ai.graphcore.CopyVarUpdate (last, x) "
        "a = Mul (n, x) }, else_branch = down () => (float[2,3] b) { "
        "sum2 = Add (total, x) v = ai.graphcore.CopyVarUpdate (total, sum2) b = Identity (x) }>",
        _branch,
    ),
    Program(
        "loop",
        {"acc": _f(2, 3, value=2)},
        "three = Constant <value_int = 3> () half = Constant <value_float = 0.5> () "
        "end = Loop (three, , x) <body = step (int64 i, bool go, float[2,3] t) => "
        "(bool go2, float[2,3] t2) { t2 = Add (t, acc) h = Mul (acc, half) new = Add (h, x) "
        "u = ai.graphcore.CopyVarUpdate (acc, new) go2 = Identity (go) }> y = Sub (end, acc)",
        _loop,
    ),
    Program(
        "loop_without_states",
        {"acc": _f(2, 3, value=2)},
        "three = Constant <value_int = 3> () half = Constant <value_float = 0.5> () "
        "yes = Constant <value = bool {1}> () "
        "parts = Loop (three, yes) <body = step (int64 i, bool go) => "
        "(bool go2, float[2,3] t) { t = Identity (acc) h = Mul (acc, half) new = Add (h, x) "
        "u = ai.graphcore.CopyVarUpdate (acc, new) go2 = Identity (go) }> "
        "axes = Constant <value_ints = [0]> () sum = ReduceSum <keepdims = 0> (parts, axes) "
        "more = Add (sum, x) y = Sub (more, acc)",
        _loop,
    ),
    Program(
        "scan",
        {"row": _f(3)},
        "y = Scan <num_scan_inputs = 1, body = step (float[3] e) => (float[3] o) { "
        "new = Add (row, e) u = ai.graphcore.CopyVarUpdate (row, new) o = Add (u, u) }> (x)",
        _scan,
    ),
    Program("norm", _norm_state(), f"y, m2, v2 = {_NORM} (x, scale, bias, mean, var)", _norm),
    Program(
        "norm_of_popart",
        _norm_state(),
        "y, m2, v2, m3, v3 = ai.graphcore.BatchNormalization (x, scale, bias, mean, var)",
        lambda s, x: _norm(s, x, degrees=1),
    ),
    Program(
        "shared_norm",
        _norm_state(),
        f"h, m2, v2 = {_NORM} (x, scale, bias, mean, var) "
        f"y, m3, v3 = {_NORM} (h, scale, bias, mean, var)",
        lambda s, x: _norm(s, x, times=2),
    ),
    Program(
        "norm_in_branch",
        _norm_state(),
        f"h, m2, v2 = {_NORM} (x, scale, bias, mean, var) "
        "sum = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> () "
        "up = Greater (sum, zero) "
        f"y = If (up) <then_branch = up () => (float[2,3] a) {{ a, m3, v3 = {_NORM} "
        "(h, scale, bias, mean, var) }, else_branch = down () => (float[2,3] b) "
        "{ b = Identity (h) }>",
        lambda s, x: _norm(s, x, times=1 + int(x.sum() > 0)),
    ),
    Program(
        "norm_in_loop",
        _norm_state(),
        f"h, m2, v2 = {_NORM} (x, scale, bias, mean, var) two = Constant <value_int = 2> () "
        "y = Loop (two, , h) <body = step (int64 i, bool go, float[2,3] t) => "
        f"(bool go2, float[2,3] t2) {{ t2, m3, v3 = {_NORM} (t, scale, bias, mean, var) "
        "go2 = Identity (go) }>",
        lambda s, x: _norm(s, x, times=3),
    ),
    Program(
        "function",
        {"acc": _f(2, 3)},
        "y = local.count (acc, x)",
        _counter,
        _FUNCTION,
    ),
    Program(
        "function_aside",
        {"n": _f(2, 3)},
        "unused = local.count (n, x) y = Add (x, x)",
        lambda s, x: (x + x, {"n": s["n"] + x}),
        _FUNCTION,
    ),
    Program(
        "nested",
        {"n": _f(), "total": _f(2, 3)},
        "four = Constant <value_int = 4> () go0 = Constant <value = bool {1}> () "
        "run = Loop (four, go0, n) <body = step (int64 i, bool go, float m) => "
        "(bool go2, float m2) { one = Constant <value_float = 1.0> () "
        "two = Constant <value_float = 2.0> () end = Constant <value_float = 5.5> () "
        "late = Greater (m, two) "
        "d = If (late) <then_branch = yes () => (float[2,3] a) { more = Add (total, x) "
        "a = ai.graphcore.CopyVarUpdate (total, more) }, "
        "else_branch = no () => (float[2,3] b) { b = Identity (total) }> "
        "m2 = Add (m, one) go2 = Less (m2, end) }> "
        "five = Constant <value_float = 5.0> () three = Constant <value_float = 3.0> () "
        "big = Greater (run, five) off = Cast <to = 1> (big) less = Mul (off, three) "
        "start = Sub (run, less) v = ai.graphcore.CopyVarUpdate (n, start) "
        "y = Sub (x, x)",
        lambda s, x: (x - x, _nested(s, x)[1]),
    ),
)
