"""Inputs that a program keeps from run to run, token by token beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import popc
from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.executable import Executable
from popc_runtime.format import Array, Region, instructions_of
from tests.support.compiling import compiled_model
from tests.support.decoders import FORMS, Tokens, decoder

_LEFT: Final = [[0, 0, 1, 1], [1, 1, 1, 1]]
_RIGHT: Final = [[1, 1, 0, 0], [1, 1, 1, 1]]
_TOKEN: Final = [[1], [1]]


def _compiled(model: onnx.ModelProto, rows: int | Sequence[int], most: int) -> popc.Archive:
    return popc.compile(model, dims={"B": 2, "S": rows}, options={"bounds": {"P": most}})


def _generate(
    model: onnx.ModelProto, program: Executable, steps: Sequence[list[list[int]]]
) -> list[Array]:
    """The logits of each step, which are onnxruntime's where tokens count."""
    tokens = Tokens(model, 2)
    found = []
    for step in steps:
        counted = np.array(step, np.int64)
        inputs, wanted = tokens.step(counted)
        found.append(program.run(inputs)["logits"])
        real = counted.astype(bool)
        np.testing.assert_allclose(found[-1][real], wanted[real], rtol=1e-4, atol=1e-5)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_tokens_follow_each_other(form: str) -> None:
    """Prompts of several tokens and single tokens share the caches of one archive."""
    model = decoder(form)
    prompt = _RIGHT if form == "group query" else _LEFT
    steps = [prompt, _TOKEN, _TOKEN] if form == "group query" else [prompt, _TOKEN, prompt, _TOKEN]
    program = _compiled(model, [1, 4], 12).load()
    assert [spec.name for spec in program.inputs] == ["input_ids", "attention_mask"]
    assert [spec.name for spec in program.outputs] == ["logits"]
    program.warmup()
    first = _generate(model, program, steps)
    program.state.reset()
    for again, before in zip(_generate(model, program, steps), first, strict=True):
        np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_as_large_as_a_cache_is_copied(form: str) -> None:
    """Attention reads the caches where they lie, and two writes put new rows there."""
    model = decoder(form)
    image = compiled_model(model, {"bounds": {"P": 64}}, dims={"B": 2, "S": 1}).image
    large = [
        (item.opcode, image.slots[slot].region)
        for item in instructions_of(image.programs["main"])
        for slot in item.outputs
        if np.prod(image.slots[slot].shape) >= 2 * 2 * 64 * 16
    ]
    writes = "TensorScatter" if form == "group query" else "DynamicUpdate"
    assert large == [(writes, Region.STATE)] * (1 if form == "packed" else 2)


def test_a_run_past_the_bound_changes_nothing() -> None:
    model = decoder("operator")
    program = _compiled(model, 1, 3).load()
    _generate(model, program, [_TOKEN] * 3)
    held = program.state.read()
    assert held["P"] == 3
    inputs = {"input_ids": np.ones((2, 1), np.int64), "attention_mask": np.ones((2, 1), np.int64)}
    with pytest.raises(DeviceError, match=r"'P' has a size of 4, but at most 3 .*--bound P=4"):
        program.run(inputs)
    for name, array in program.state.read().items():
        np.testing.assert_array_equal(array, held[name])
    program.state.reset()
    assert program.run(inputs)["logits"].shape == (2, 1, 20)


_CELL: Final = """<ir_version: 10, opset_import: ["": 20]>
cell (float[1, 3] x, float[1, 3] h) => (float[1, 3] y, float[1, 3] hn, float[2, 3] z)
{
    s = Add(x, h)
    hn = Tanh(s)
    y = Mul(hn, x)
    z = Concat<axis = 0>(x, h)
}
"""
_ROWS: Final = """<ir_version: 10, opset_import: ["": 20]>
rows (float[1, 3] x, float[1, N] c, float[1, M] m) => (float[1, M] cn, float[1, M] dn)
{
    cn = Concat<axis = 1>(c, x)
    dn = Concat<axis = 1>(cn, x)
}
"""


def _kept(text: str, **options: Mapping[str, Any]) -> popc.Archive:
    return popc.compile(parser.parse_model(text), options=options)


def test_a_state_begins_as_zeros() -> None:
    program = _kept(_CELL, states={"h": "hn"}).load()
    h = np.zeros((1, 3), np.float32)
    for number in range(3):
        x = np.full((1, 3), number + 0.5, np.float32)
        found = program.run({"x": x})
        np.testing.assert_allclose(found["z"], np.concatenate([x, h]), rtol=1e-5)
        h = np.tanh(x + h)
        np.testing.assert_allclose(found["y"], h * x, rtol=1e-5)
    assert [*found] == ["y", "z"]


def test_an_output_that_is_asked_for_is_kept_and_returned() -> None:
    archive = popc.compile(
        parser.parse_model(_ROWS),
        outputs=["cn"],
        options={"states": {"c*": "cn*"}, "bounds": {"N": 7}},
    )
    program, rows = archive.load(), np.zeros((1, 0), np.float32)
    for number in range(2):
        x = np.full((1, 3), number + 0.5, np.float32)
        rows = np.concatenate([rows, x], axis=1)
        found = program.run({"x": x, "m": np.ones_like(x)})
        np.testing.assert_array_equal(found["cn"], rows)


@pytest.mark.parametrize(
    ("text", "states", "bounds", "messages"),
    [
        (_CELL, {"g": "hn"}, {}, ["no input 'g'"]),
        (_CELL, {"h": "hm", "q*": "r"}, {}, ["no output 'hm'", "no input 'q*'"]),
        (_CELL, {"h": "hn", "x": "hn"}, {}, ["output 'hn' would be the next value of several"]),
        (_CELL, {"h": "z"}, {}, ["output is float32[2,3], not float32[1,3]"]),
        (_CELL, {"h": "hn"}, {"h": 4}, ["does not decide the size of 'h'"]),
        (_CELL, {"x": "append"}, {}, ["x would be kept beside caches, but there are none"]),
        (_ROWS, {"c": "cn"}, {}, ["'c', float32[1,N], is a cache", "--bound N=N"]),
        (_ROWS, {"c": "cn"}, {"N": 2}, ["N=2, but a run adds 3 rows"]),
        (_ROWS, {"c": "cn"}, {"N": 7, "c": 8}, ["their bounds differ: N=7, c=8"]),
        (_ROWS, {"c": "dn"}, {"N": 9}, ["c and dn: ", "by 6 rows, but 3 are given to it"]),
        (_ROWS.replace("M] m", "N] m"), {"c": "cn"}, {"N": 9}, ["as long as the caches before"]),
        (_ROWS, {}, {"N": 4}, ["'N' is a dimension of input 'c', which is no cache"]),
    ],
)
def test_what_does_not_fit(
    text: str, states: Mapping[str, str], bounds: Mapping[str, int], messages: Sequence[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        _kept(text, states=states, bounds=bounds)
    found = "\n".join([str(caught.value), *caught.value.details])
    assert [message for message in messages if message not in found] == [], found


_CROSS: Final = """<ir_version: 10, opset_import: ["": 20]>
cross (float[1, 1, 8] x, float[1, P, 8] past, float[1, 6, 8] seen)
    => (float[1, 1, 8] y, float[1, T, 8] present)
{
    present = Concat<axis = 1>(past, x)
    turned = Transpose<perm = [0, 2, 1]>(present)
    scores = MatMul(x, turned)
    shares = Softmax(scores)
    own = MatMul(shares, present)
    keys = Transpose<perm = [0, 2, 1]>(seen)
    others = MatMul(own, keys)
    parts = Softmax(others)
    y = MatMul(parts, seen)
}
"""


def test_what_the_host_writes_is_held() -> None:
    """What an encoder has read is written once for each sequence, not given to every run."""
    archive = _kept(_CROSS, states={"past": "present", "seen": "hold"}, bounds={"P": 4})
    session = onnxruntime.InferenceSession(parser.parse_model(_CROSS).SerializeToString())
    rng, program = np.random.default_rng(0), archive.load()
    assert [spec.name for spec in program.inputs] == ["x"]
    for _ in range(2):
        seen = rng.standard_normal((1, 6, 8)).astype(np.float32)
        past = np.zeros((1, 0, 8), np.float32)
        program.state.reset()
        program.state.write({"seen": seen})
        for _ in range(3):
            x = rng.standard_normal((1, 1, 8)).astype(np.float32)
            wanted, past = session.run(None, {"x": x, "past": past, "seen": seen})
            np.testing.assert_allclose(program.run(x=x)["y"], wanted, rtol=1e-5, atol=1e-6)


def test_all_that_is_kept_may_be_held() -> None:
    program = _kept(_CELL, states={"h": "hold"}).load()
    x, h = np.full((1, 3), 0.5, np.float32), np.full((1, 3), 2, np.float32)
    program.state.write({"h": h})
    for _ in range(2):
        np.testing.assert_allclose(program.run(x=x)["hn"], np.tanh(x + h), rtol=1e-5)


_DEEP: Final = """<ir_version: 10, opset_import: ["": 20]>
deep (float[1, 1, D] x, float[1, P, D] past_key) => (float[1, T, D] present_key)
{
    present_key = Concat<axis = 1>(past_key, x)
}
"""


@pytest.mark.parametrize(
    ("bounds", "advised"),
    [
        pytest.param({}, True, id="open"),
        pytest.param({"P": 4}, False, id="kept"),
    ],
)
def test_only_what_grows_is_said_to_be_kept(bounds: dict[str, int], *, advised: bool) -> None:
    with pytest.raises(UsageError, match="'D'") as caught:
        _kept(_DEEP, bounds=bounds)
    assert ('options={"bounds": {"P": N}}' in str(caught.value.hint)) is advised
    assert '"D": N' not in str(caught.value.hint)
