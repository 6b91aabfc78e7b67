"""Hints that were tried before they are printed."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import parser

import popc
from popc_runtime.errors import ModelError, PopcError, SpokenHint, UsageError

_HEADER = '<ir_version: 10, opset_import: ["" : 17]> '
_CONV = """{ s = Constant<value_ints=[4, 3, 7, 7]>() w = ConstantOfShape(s) y = Conv(x, w) }"""
_SKIP = """{
    p = MaxPool<kernel_shape=[4, 4], strides=[4, 4]>(x)
    none = Constant<value = float[0] {}>()
    scales = Constant<value = float[4] {1, 1, 4, 4}>()
    r = Resize<mode="nearest">(p, none, scales)
    y = Add(x, r)
}"""
_BROADCAST = (
    _SKIP.replace("[4, 4]", "[2, 2]")
    .replace("1, 1, 4, 4", "1, 1, 2, 2")
    .replace("MaxPool<", "MaxPool<ceil_mode=1, ")
)
_TABLE = """{
    shape = Constant<value_ints=[1, 3, 20, 20]>()
    table = ConstantOfShape(shape)
    from = Constant<value_ints=[0, 0, 0, 0]>()
    size = Shape(x)
    part = Slice(table, from, size)
    y = Add(x, part)
}"""
_VOICE = """voice (float[1, 512] x, int64 sr) => (float[1, 512] y) {
    fast = Constant<value_int=16000>()
    is_fast = Equal(sr, fast)
    y = If(is_fast) <
        then_branch = a () => (float[1, 512] t) { t = Relu(x) },
        else_branch = b () => (u) {
            w = Constant<value = float[2] {1, 2}>()
            u, h = LSTM<hidden_size=8>(x, w, w)
        }
    >
}"""


def _parsed(text: str, *names: str) -> onnx.ModelProto:
    """A model; ``names`` replace the symbolic dimensions of its first input, in their order."""
    model = parser.parse_model(_HEADER + text)
    dims = [d for d in model.graph.input[0].type.tensor_type.shape.dim if d.dim_param]
    for dim, name in zip(dims, names, strict=False):
        dim.dim_param = name
    return model


def _hint(model: onnx.ModelProto, kind: type[PopcError], **keywords: Any) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        popc.compile(model, **keywords)
    assert isinstance(caught.value.hint, SpokenHint)
    return str(caught.value.hint), caught.value.hint.command_line


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("{ y = Relu(x) }", ""),
        (_CONV, "; HEIGHT and WIDTH: at least 7"),
        (_SKIP, "; HEIGHT and WIDTH: a multiple of 4, at least 4"),
        (_BROADCAST, "; HEIGHT and WIDTH: a multiple of 2"),  # an image of one pixel does, too
        (_TABLE, "; HEIGHT and WIDTH: at most 20"),
    ],
)
def test_sizes_are_bounded_where_bounds_are_found(body: str, bounds: str) -> None:
    model = _parsed(f"g (float[N, 3, H, W] x) => (y) {body}", "?", "?", "?")
    python, shell = _hint(model, UsageError)
    assert python == f'shapes={{"x": (1, 3, HEIGHT, WIDTH)}}{bounds}'
    assert shell == f"--shape x=1,3,HEIGHT,WIDTH{bounds}"


def test_names_of_dimensions_become_words() -> None:
    model = _parsed(f"g (float[N, 3, height, new_width] x) => (y) {_CONV}")
    python, shell = _hint(model, UsageError)
    bounds = "; HEIGHT and NEW_WIDTH: at least 7"
    assert python == f'dims={{"N": 1, "height": HEIGHT, "new_width": NEW_WIDTH}}{bounds}'
    assert shell == f"--dim N=1 --dim height=HEIGHT --dim new_width=NEW_WIDTH{bounds}"


def test_states_have_the_batch_in_the_middle() -> None:
    model = _parsed("g (float[N, L] x, float[2, B, 8] h) => (y, z) { y = Relu(x) z = Relu(h) }")
    for given in model.graph.input:
        for dim in given.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = "?"
    _, shell = _hint(model, UsageError)
    assert shell == "--shape x=1,LENGTH --shape h=2,1,8"


def test_a_size_that_is_given_is_part_of_what_is_tried() -> None:
    model = _parsed(f"g (float[N, 3, H, W] x, float[N] z) => (y) {_CONV}")
    _, shell = _hint(model, UsageError, dims={"H": 9})
    assert shell == "--dim N=1 --dim W=W; W: at least 7"


def test_the_input_that_chooses_a_branch_is_named_with_its_value() -> None:
    python, shell = _hint(_parsed(_VOICE), ModelError)
    assert python == 'sr decides it: bind={"sr": 16000}'
    assert shell == "sr decides it: --bind sr=16000"
    popc.compile(_parsed(_VOICE), bind={"sr": 16000})


def test_the_input_that_makes_a_shape_is_named() -> None:
    model = _parsed("g (float[4] x, int64[2] size) => (y) { y = ConstantOfShape(size) }")
    python, shell = _hint(model, ModelError)
    assert python == 'size decides it: bind={"size": VALUE}, with a value such as [1, 1]'
    assert shell == "size decides it: --bind size=VALUE, with a value such as 1,1"


def test_a_shape_of_no_dimensions_need_not_be_known() -> None:
    popc.compile(_parsed("g (float[1] x, int64[0] size) => (y) { y = Reshape(x, size) }"))


def test_data_is_not_proposed() -> None:
    nodes = "n = Cast<to = 7>(x) y = ConstantOfShape(n)"
    python, shell = _hint(_parsed(f"g (float[4] x) => (y) {{ {nodes} }}"), ModelError)
    assert python.startswith("fix the values that decide it with bind=")
    assert shell.startswith("fix the values that decide it with --bind")
