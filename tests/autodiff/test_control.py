"""Gradients through If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

from popc.autodiff import differentiate
from popc.ir import Graph, Op
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.graph_gradients import check_graph_gradients, with_gradients
from tests.support.oracles import import_graph
from tests.support.pipeline import Program
from tests.support.recorded import Answers, Pytorch

_HEADER = '<ir_version: 10, opset_import: ["" : 22]>'


def _graph(text: str) -> Graph:
    return import_graph(parser.parse_model(_HEADER + text))


def _feeds(graph: Graph, **given: Any) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        tensor.name: np.asarray(given[tensor.name], tensor.type.dtype.storage)
        if tensor.name in given
        else np.asarray(rng.uniform(0.2, 1.0, tensor.type.shape))
        for tensor in graph.inputs
    }


def _find(graph: Graph, op_type: str) -> list[Op]:
    return [op for op in graph.topological() if op.op_type == op_type]


def _loop(states: str, body: str, *, trips: str = "n", go: str = "", results: str = "s, t") -> str:
    """A graph from s0, t0, w, k and flag to the results of a loop with states s and t."""
    return f"""g (double[3] s0, double[2,3] t0, double[3] w, int64 k, bool flag)
        => (double[3] s, double[2,3] t) <int64 n = {{3}}, int64 one = {{1}}, int64 two = {{2}}> {{
        {results} = Loop <body = step (int64 i, bool c, double[3] p, double[2,3] q)
            => (bool again, {states}) {{ {body} }}> ({trips}, {go}, s0, t0)
        }}"""


_P, _Q = "double[3] p2", "double[2,3] q2"
_ALWAYS = "again = Identity (c)"

# Loops and branches over _loop's inputs
_CASES = {
    "both_states": _loop(
        f"{_P}, {_Q}", f"{_ALWAYS} m = Mul (p, w) p2 = Sin (m) r = Mul (q, p2) q2 = Add (r, p)"
    ),
    "swapped": _loop(
        f"{_P}, double[3] q2",
        f"{_ALWAYS} p2 = Identity (q) m = Mul (p, w) q2 = Tanh (m)",
    ).replace("double[2,3]", "double[3]"),
    "passed_through": _loop(f"{_P}, double[2,3] q", f"{_ALWAYS} p2 = Mul (p, w)"),
    "passed_through_and_read": _loop(
        f"{_P}, double[2,3] q",
        f"{_ALWAYS} r = Sin (q) a = ReduceSum <keepdims = 0> (r) m = Mul (p, w) p2 = Mul (m, a)",
    ),
    "unused_state": _loop(
        f"{_P}, {_Q}", f"{_ALWAYS} p2 = Mul (p, w) f = Cast <to = 11> (i) q2 = Mul (t0, f)"
    ),
    "capture_used_twice": _loop(
        f"{_P}, {_Q}",
        f"{_ALWAYS} a = Mul (w, w) b = Mul (a, s0) p2 = Add (b, p) q2 = Mul (q, w)",
    ),
    "iteration_number": _loop(
        f"{_P}, {_Q}",
        f"{_ALWAYS} f = Cast <to = 11> (i) m = Mul (p, f) p2 = Add (m, w) q2 = Mul (q, p2)",
    ),
    "results_of_tanh": _loop(f"{_P}, {_Q}", f"{_ALWAYS} p2 = Tanh (p) q2 = Exp (q)"),
    "one_iteration": _loop(
        f"{_P}, {_Q}", f"{_ALWAYS} p2 = Mul (p, w) q2 = Mul (q, p2)", trips="one"
    ),
    "a_condition_ends_it": _loop(
        f"{_P}, {_Q}", "again = Less (i, k) p2 = Mul (p, w) m = Mul (q, p2) q2 = Sin (m)"
    ),
    "a_condition_begins_it": _loop(
        f"{_P}, {_Q}", "again = Less (i, k) p2 = Mul (p, w) q2 = Tanh (q)", go="flag"
    ),
    "if_in_loop": _loop(
        f"{_P}, {_Q}",
        f"""{_ALWAYS} early = Less (i, k)
        p2, q2 = If (early) <then_branch = a () => ({_P}, {_Q}) {{ m = Mul (p, w) p2 = Sin (m)
            q2 = Identity (q) }}, else_branch = b () => ({_P}, {_Q}) {{ p2 = Tanh (p)
            q2 = Mul (q, p) }}>""",
    ),
    "loop_in_if_in_loop": _loop(
        f"{_P}, {_Q}",
        f"""{_ALWAYS} early = Less (i, k) q2 = Mul (q, w)
        p2 = If (early) <then_branch = a () => ({_P}) {{ p2 = Loop (two, , p)
            <body = inner (int64 j, bool d, double[3] y) => (bool d, double[3] z) {{
                x = Mul (y, w) r = ReduceMean <keepdims = 0> (x) z0 = Mul (x, r) z = Sin (z0)
            }}> }}, else_branch = b () => ({_P}) {{ p2 = Identity (p) }}>""",
    ),
    "while_in_loop": _loop(
        f"{_P}, {_Q}",
        f"""{_ALWAYS} q2 = Mul (q, w) p2 = Loop (two, flag, p)
            <body = inner (int64 j, bool d, double[3] y) => (bool more, double[3] z) {{
                sum = Add (i, j) more = Less (sum, k) x = Mul (y, w) z = Sin (x) }}>""",
    ),
}


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("k", [0, 1])
def test_loops(name: str, k: int) -> None:
    graph = _graph(_CASES[name])
    check_graph_gradients(graph, _feeds(graph, k=k, flag=True))


def test_a_loop_that_does_not_begin() -> None:
    graph = _graph(_CASES["a_condition_begins_it"])
    check_graph_gradients(graph, _feeds(graph, k=1, flag=False))


@pytest.mark.parametrize("flag", [True, False])
def test_branches_that_need_different_things(*, flag: bool) -> None:
    graph = _graph("""g (double[3] x, double[3] w, double[3] v, bool flag)
        => (double[3] y, double[3] z) {
        a = Exp (x)
        y, z = If (flag) <
            then_branch = t () => (double[3] r, double[3] x) { b = Mul (a, w) r = Mul (b, w) },
            else_branch = e () => (double[3] r, double[3] v) { r = Tanh (a) }>
    }""")
    check_graph_gradients(graph, _feeds(graph, flag=flag))


@pytest.mark.parametrize("kind", ["RandomNormalLike", "RandomUniformLike"])
@pytest.mark.parametrize("flag", [True, False])
def test_random_numbers_are_drawn_once(kind: str, *, flag: bool) -> None:
    """In a loop, in a branch in a loop, and in a loop in a branch in a loop that may end early."""
    graph = _graph(f"""g (double[4] x, double[4] w, bool flag, int64 k)
        => (double[4] y, double[3, 4] ys)
        <int64 n = {{3}}, double half = {{0.5}}, bool train = {{1}}> {{
        y, ys = Loop (n, , x) <body = step (int64 i, bool c, double[4] p)
            => (bool c, double[4] q, double[4] d) {{
            m = Mul (p, w)  d = Dropout <seed = 7> (m, half, train)
            e = If (flag) <
                then_branch = t () => (double[4] f) {{
                    noise = {kind} <seed = 3.0> (d)  f = Mul (d, noise) }},
                else_branch = e () => (double[4] f) {{ f = Loop (n, flag, d)
                    <body = inner (int64 j, bool on, double[4] s) => (bool more, double[4] u) {{
                        noise = {kind} <seed = 5.0> (s)  o = Mul (s, noise)  u = Sin (o)
                        sum = Add (i, j)  more = Less (sum, k) }}> }}>
            q = Tanh (e) }}>
    }}""")
    feeds = _feeds(graph, flag=flag, k=2)
    check_graph_gradients(graph, feeds)


# -- recurrent networks ----------------------------------------------------------------------------

_CELL = "a = MatMul (row, w) b = MatMul (h1, u) s = Add (a, b) h2 = Tanh (s)"
_RNN_INPUTS = "double[5,2,3] x, double[2,4] h0, double[3,4] w, double[4,4] u"
_RNN = f"""g ({_RNN_INPUTS}) => (double[2,4] h, double[5,2,4] ys) {{
    h, ys = Scan <num_scan_inputs = 1, body = step (double[2,4] h1, double[2,3] row)
        => (double[2,4] h2, double[2,4] y) {{ {_CELL} y = Mul (h2, h2) }}> (h0, x)
}}"""


def _unrolled() -> str:
    """What `_RNN` computes, without a loop."""
    steps = []
    for t in range(5):
        cell = f"row = Gather (x, i{t}) {_CELL} y = Mul (h2, h2) out = Unsqueeze (y, i0)"
        for name in ("row", "a", "b", "s", "y", "out", "h2"):
            cell = cell.replace(f"{name} =", f"{name}_{t} =")
            for before, after in (("(", ","), ("(", ")"), (" ", ","), (" ", ")")):
                cell = cell.replace(f"{before}{name}{after}", f"{before}{name}_{t}{after}")
        steps.append(cell.replace("h1", f"h2_{t - 1}" if t else "h0"))
    constants = ", ".join(f"int64 i{t} = {{{t}}}" for t in range(5))
    stack = ", ".join(f"out_{t}" for t in range(5))
    return f"""g ({_RNN_INPUTS}) => (double[2,4] h, double[5,2,4] ys) <{constants}> {{
        {" ".join(steps)} ys = Concat <axis = 0> ({stack}) h = Identity (h2_4)
    }}"""


def _gradients(text: str, weights: dict[str, Array], feeds: dict[str, Array]) -> dict[str, Array]:
    graph = _graph(text)
    with_gradients(graph, weights)
    return Program(graph).run(feeds)


def _rnn_data() -> tuple[dict[str, Array], dict[str, Array]]:
    graph = _graph(_RNN)
    rng = np.random.default_rng(1)
    weights = {
        name: rng.standard_normal(tensor.type.shape)
        for name, tensor in zip(graph.output_names, graph.outputs, strict=True)
    }
    return weights, _feeds(graph)


def test_a_scan_and_its_unrolled_form() -> None:
    weights, feeds = _rnn_data()
    looped = _gradients(_RNN, weights, feeds)
    unrolled = _gradients(_unrolled(), weights, feeds)
    assert looped.keys() == unrolled.keys() == {"h", "ys", "d_x", "d_h0", "d_w", "d_u"}
    for name, expected in unrolled.items():
        np.testing.assert_allclose(looped[name], expected, rtol=1e-12, atol=1e-12)


def _scan_in_torch() -> Answers:
    import torch

    weights, feeds = _rnn_data()
    x, h, w, u = (torch.from_numpy(feeds[name]).requires_grad_() for name in ("x", "h0", "w", "u"))
    operands = {"x": x, "h0": h, "w": w, "u": u}
    loss: Any = 0
    for t in range(5):
        h = torch.tanh(x[t] @ w + h @ u)
        loss = loss + (h * h * torch.from_numpy(weights["ys"][t])).sum()
    (loss + (h * torch.from_numpy(weights["h"])).sum()).backward()
    return {name: operand.grad.numpy() for name, operand in operands.items()}


def test_a_scan_in_torch(pytorch: Pytorch) -> None:
    ours = _gradients(_RNN, *_rnn_data())
    for name, expected in pytorch(_scan_in_torch).items():
        np.testing.assert_allclose(ours[f"d_{name}"], expected, rtol=1e-9, atol=1e-12)


def test_what_a_recurrent_network_keeps_and_repeats() -> None:
    """The state of each iteration is kept; the results are not computed twice, nor added up."""
    graph = _graph(_RNN)
    weights, _ = _rnn_data()
    with_gradients(graph, weights)
    forward, backward = _find(graph, "Loop")
    assert len(forward.outputs) == 3
    body = backward.subgraphs["body"]
    assert not _find(body, "Tanh")
    assert len(_find(body, "MatMul")) == 4  # the gradients, and nothing of the forward pass
    results = [tensor.type.shape for tensor in backward.outputs]
    assert results == [(2, 4), (3, 4), (4, 4), (2, 4), (5, 2, 3)]


@pytest.mark.parametrize(
    "attributes",
    [
        "scan_input_directions = [1]",
        "scan_input_axes = [1], scan_output_directions = [1]",
        "scan_output_axes = [1]",
    ],
)
def test_directions_and_axes(attributes: str) -> None:
    shape = "3,5" if "input_axes" in attributes else "5,3"
    out = "3,5" if "output_axes" in attributes else "5,3"
    graph = _graph(f"""g (double[{shape}] x, double[3] h0) => (double[3] h, double[{out}] ys) {{
        h, ys = Scan <num_scan_inputs = 1, {attributes},
            body = step (double[3] h1, double[3] row) => (double[3] h2, double[3] y) {{
                m = Mul (h1, row) h2 = Sin (m) y = Mul (h2, row) }}> (h0, x)
    }}""")
    check_graph_gradients(graph, _feeds(graph))


def test_elements_around_the_present_one() -> None:
    """Several elements of one capture, some of which no iteration reads, and all of it besides."""
    graph = _graph("""g (double[6,2] x, double[2] h0) => (double[2] h)
        <int64 n = {3}, int64 one = {1}, int64[1] two = {2}, int64 axis = {0}> {
        h = Loop (n, , h0) <body = step (int64 i, bool c, double[2] p) => (bool c, double[2] q) {
            next = Add (i, one)  a = Gather (x, next)
            back = Sub (two, i)  b0 = Gather (x, back)  zero = Sub (one, one)
            shape = Constant <value_ints = [2]> ()  b = Reshape (b0, shape)
            mean = ReduceMean <keepdims = 0> (x)
            m = Mul (p, a)  o = Mul (m, b)  r = Add (o, mean)  q = Sin (r) }>
    }""")
    check_graph_gradients(graph, _feeds(graph))


# -- what cannot be done ---------------------------------------------------------------------------


def test_all_ops_in_the_way_are_named_at_once() -> None:
    bits = "half = Cast <to = 10> ({}) other = BitCast <to = 16> (half) {} = Cast <to = 11> (other)"
    graph = _graph(f"""g (double[3] x, int64 n, bool flag) => (double[3] y) {{
        a = Loop (n, , x) <body = b1 (int64 i, bool c, double[3] p) => (bool c, double[3] q) {{
            {bits.format("p", "q")} }}>
        y = If (flag) <
            then_branch = t () => (double[3] r) {{ r = Loop (, flag, a)
                <body = b2 (int64 i, bool c, double[3] p) => (bool go, double[3] q) {{
                    s = ReduceSum <keepdims = 0> (p)  limit = Constant <value_float = 0.5> ()
                    wide = Cast <to = 11> (limit)  go = Less (s, wide)  q = Sin (p) }}> }},
            else_branch = e () => (double[3] r) {{ {bits.format("a", "r")} }}>
    }}""")
    (x, *_), (y,) = graph.inputs, graph.outputs
    seed = graph.add_constant("seed", y.type, np.ones(3))
    with pytest.raises(ModelError) as caught:
        differentiate(graph, {y: seed}, [x])
    reason = "run-time values alone limit its iterations; give it a constant trip count"
    assert caught.value.details == (
        "BitCast (reinterprets bits): BitCast(other), BitCast(other)",
        f"Loop ({reason}): Loop(a), Loop(r)",
    )
