from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import popc
from popc.frontend import Bindings, LoadedModel, load_model
from popc.frontend.bindings import ResolvedInputs, resolve
from popc_runtime.errors import ModelError, SpokenHint, UsageError


def _model(inputs: str, outputs: str = "float[1] y", body: str = "y = Neg (x)") -> LoadedModel:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return load_model(parser.parse_model(text))


def _resolve(inputs: str, **bindings: Any) -> ResolvedInputs:
    return resolve(_model(inputs), Bindings(**bindings))


def _refused(inputs: str, **bindings: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        _resolve(inputs, **bindings)
    return caught.value


def _typed(error: UsageError) -> str:
    """The hint in words of the command line."""
    assert isinstance(error.hint, SpokenHint)
    return error.hint.command_line


def _types(resolved: ResolvedInputs) -> dict[str, str]:
    return {name: str(type_) for name, type_ in resolved.types.items()}


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ({"shapes": {"x": (2, 3, 4)}, "dims": {}}, "float32[2,3,4]"),
        ({"shapes": {}, "dims": {"N": 2, "W": 4}}, "float32[2,3,4]"),
        ({"shapes": {"x": (2, 3, 4)}, "dims": {"N": 2}}, "float32[2,3,4]"),
    ],
)
def test_shapes_and_dims(bindings: Any, expected: str) -> None:
    assert _types(_resolve("float[N, 3, W] x", **bindings)) == {"x": expected}


def test_dimensions_learnt_from_one_input_hold_for_the_others() -> None:
    resolved = _resolve("float[N, 3] x, float[3, N] z", shapes={"x": (2, 3)})
    assert _types(resolved) == {"x": "float32[2,3]", "z": "float32[3,2]"}
    resolved = _resolve("float[N] x, float[N] z", values={"x": np.zeros(5)})
    assert _types(resolved) == {"z": "float32[5]"}


def test_inputs_without_a_shape() -> None:
    model = _model("float x")
    model.proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert _types(resolve(model, Bindings(shapes={"x": (2, 3)}))) == {"x": "float32[2,3]"}
    with pytest.raises(UsageError, match="input 'x' has no shape in the model") as caught:
        resolve(model, Bindings())
    assert _typed(caught.value) == "--shape x=DIMENSIONS"


def test_negative_sizes_in_a_model_are_open() -> None:
    model = _model("float[N] x")
    model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert _types(resolve(model, Bindings(shapes={"x": (4,)}))) == {"x": "float32[4]"}


@pytest.mark.parametrize("name", ["?", "None", "unk__12", "-1", "", "  "])
def test_placeholders_are_not_one_dimension(name: str) -> None:
    model = _model("float[N, M] x, float[K] z")
    for value in model.proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = name
    shapes = {"x": (2, 3), "z": (4,)}
    assert _types(resolve(model, Bindings(shapes=shapes))) == {
        "x": "float32[2,3]",
        "z": "float32[4]",
    }


def test_open_dimensions_are_listed_with_something_to_paste() -> None:
    error = _refused("float[N, 3, H] x, float[N, ?] z, int64[4] w")
    assert error.exit_code == 2
    assert error.details == (
        "input 'x', float32[N,3,H], leaves dimensions open: 'N', 'H'",
        "input 'z', float32[N,?], leaves dimensions open: 'N', ?",
    )
    assert _typed(error) == "--dim N=SIZE --dim H=SIZE --shape z=N,DIM1"


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (
            {"shapes": {"imagee": (1,)}},
            "shape imagee: the model has no input 'imagee'; did you mean 'image'?",
        ),
        (
            {"shapes": {"q": (1,)}},
            "shape q: the model has no input 'q'; it has 'image', 'size'",
        ),
        ({"values": {"siz": 1}}, "did you mean 'size'?"),
        ({"dims": {"batsh": 1}}, "no symbolic dimension 'batsh'; did you mean 'batch'?"),
        ({"dims": {"batch": -1}}, "dim batch=-1: a dimension cannot be negative"),
        (
            {"shapes": {"image": (1, 3)}},
            "shape image=1,3: 2 dimensions, but the model declares float32[batch,3,8] with 3",
        ),
        (
            {"shapes": {"image": (1, 4, 8)}},
            "shape image=1,4,8: dimension 1 is 4, but the model fixes it to 3",
        ),
        ({"shapes": {"image": (-1, 3, 8)}}, "a dimension cannot be negative"),
        (
            {"shapes": {"image": (2, 3, 8)}, "dims": {"batch": 4}},
            "shape image=2,3,8: dimension 0, 'batch', is 2, but dim batch=4 makes it 4",
        ),
        ({"shapes": {"size": (1,)}, "values": {"size": [1]}}, "bound to a value already"),
        ({"outputs": ("yy",)}, "output yy: the model has no tensor 'yy'; did you mean 'y'?"),
        ({"anchors": ("hiddenn",)}, "did you mean 'hidden'?"),
        (
            {"values": {"size": np.zeros((2, 2), int)}},
            "bind size: 2 dimensions, but the model declares int64[batch] with 1",
        ),
        (
            {"values": {"size": np.array([0.5])}},
            "bind size: float64 values 0.5 cannot become int64 without loss",
        ),
        ({"values": {"size": np.array(["a"])}}, "<U1 values cannot become int64"),
        ({"values": {"size": None}}, "a tensor cannot be None"),
    ],
)
def test_mistakes(bindings: dict[str, Any], message: str) -> None:
    model = _model(
        "float[batch, 3, 8] image, int64[batch] size",
        body="hidden = Relu (image) y = Neg (hidden)",
    )
    shapes = {"image": (1, 3, 8)} | bindings.pop("shapes", {})
    with pytest.raises(UsageError) as caught:
        resolve(model, Bindings(shapes=shapes, **bindings))
    assert message in str(caught.value)


def test_all_mistakes_are_reported_at_once() -> None:
    error = _refused(
        "float[N, 3] x, float[N] z",
        shapes={"x": (1, 4), "w": (1,)},
        dims={"M": 1},
        outputs=("q",),
    )
    assert error.message == "4 problems with the inputs and outputs of the model"
    assert len(error.details) == 4


def test_a_weight_that_is_listed_as_input_is_none_unless_bound() -> None:
    model = load_model(
        parser.parse_model("""
            <ir_version: 3, opset_import: ["" : 17]>
            g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }
        """)
    )
    assert _types(resolve(model, Bindings())) == {"x": "float32[2]"}
    bound = resolve(model, Bindings(values={"w": [5.0, 6.0]})).values["w"]
    assert isinstance(bound, np.ndarray)
    with pytest.raises(UsageError, match="the model has no input 'w'"):
        resolve(model, Bindings(shapes={"w": (2,)}))


# -- values ----------------------------------------------------------------------------------------


def _bound(declared: str, value: Any) -> Any:
    return _resolve(f"{declared} x", values={"x": value}).values["x"]


@pytest.mark.parametrize(
    ("declared", "value", "dtype", "shape"),
    [
        ("int64[]", 16000, np.int64, ()),
        ("int32[1]", 16000, np.int32, (1,)),
        ("int64[N, 1]", 3, np.int64, (1, 1)),
        ("float[2]", np.array([1, 2]), np.float32, (2,)),
        ("float[1]", 0.1, np.float32, (1,)),
        ("double[]", np.float32(0.5), np.float64, ()),
        ("bool[2]", np.array([0, 1]), np.bool_, (2,)),
        ("uint8[]", 3.0, np.uint8, ()),
        ("float16[]", 65519, np.float16, ()),
        ("bfloat16[1]", np.array([1.5]), np.float32, (1,)),
        ("bfloat16[1]", np.array([1.5], ml_dtypes.bfloat16), np.float32, (1,)),
    ],
)
def test_values_take_the_declared_type(
    declared: str, value: Any, dtype: Any, shape: tuple[int, ...]
) -> None:
    bound = _bound(declared, value)
    assert (bound.dtype, bound.shape) == (dtype, shape)
    if dtype != np.float16:
        np.testing.assert_allclose(bound, np.asarray(value, float).reshape(shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("declared", "value"),
    [("uint8[]", 300), ("int8[]", -129), ("bool[]", 2), ("int64[]", 1e300), ("int32[]", 1 << 40)],
)
def test_values_are_not_bent(declared: str, value: Any) -> None:
    with pytest.raises(UsageError, match="without loss"):
        _bound(declared, value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("float[]", 1e300),
        ("float16[2]", [1.0, -65520]),
        ("float16[1]", np.array([1 << 20])),
        ("bfloat16[]", np.float32(3.4e38)),
    ],
)
def test_floats_do_not_become_infinite(declared: str, value: Any) -> None:
    with pytest.raises(UsageError, match=r"bind x: \w+ values \S+ become infinite as \w*float"):
        _bound(declared, value)


def test_what_is_infinite_stays_so() -> None:
    bound = _bound("float16[3]", [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(bound, np.array([np.inf, -np.inf, np.nan], np.float16))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.zeros((2, 3))], "bind x: 3 dimensions, but the model declares float32[2,3] with 2"),
        ([[1, 2]], "bind x: dimension 0 is 1, but the model fixes it to 2"),
        ([[1, 2, 3], [4]], "bind x: arrays of different shapes do not make a tensor"),
        ({"q": np.zeros((2, 3))}, "bind x: there is no array 'x', only 'q'"),
        ({"x": np.zeros(3)}, "bind x: 1 dimensions, but the model declares float32[2,3] with 2"),
    ],
)
def test_lists_and_files_are_checked_as_arrays_are(value: Any, message: str) -> None:
    assert message in str(_refused("float[2, 3] x", values={"x": value}))


def test_of_named_arrays_an_input_takes_its_own() -> None:
    arrays = {"q": np.zeros(5), "x": np.arange(6).reshape(2, 3)}
    for declared in ("float[2, 3]", "float[N, 3]", "optional(float[2, 3])"):
        np.testing.assert_array_equal(_bound(declared, arrays), arrays["x"])
    for declared in ("seq(float)", "optional(seq(float))"):
        assert [item.shape for item in _bound(declared, arrays)] == [(5,), (2, 3)]


def test_sequences_and_optionals() -> None:
    items = _bound("seq(float[N])", [np.zeros(2), np.zeros(3)])
    assert [item.shape for item in items] == [(2,), (3,)]
    assert _bound("optional(float[2])", None) is None
    assert _bound("optional(float[2])", [1, 2]).tolist() == [1, 2]
    error = _refused("seq(float[N]) x")
    assert "input 'x' is a sequence: its value must be known" in str(error)
    assert _typed(error) == "--bind x=FILE.npz"
    assert "needs a list of arrays" in str(_refused("seq(float[N]) x", values={"x": np.zeros(2)}))
    assert "is a sequence, bind its value" in str(_refused("seq(float[N]) x", shapes={"x": (2,)}))


def test_unsupported_element_types_are_listed() -> None:
    with pytest.raises(ModelError) as caught:
        _resolve("string[1] a, float[1] x, complex64[1] c, seq(string) s")
    assert caught.value.details == (
        "input 'c': element type complex64 is not supported",
        "input 's': element type string is not supported",
    )


def test_what_to_paste_is_quoted_for_the_shell() -> None:
    model = _model("float[N] x")
    model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "past + new"
    with pytest.raises(UsageError) as caught:
        resolve(model, Bindings())
    assert _typed(caught.value) == "--dim 'past + new=SIZE'"


@pytest.mark.parametrize(
    ("keywords", "shape"),
    [
        ({}, (3, 4)),
        ({"dims": {"N": 5}}, (5, 4)),
        ({"shapes": {"x": (6, 4)}}, (6, 4)),
    ],
)
def test_batch_size_is_for_dimensions_that_nothing_else_says(
    keywords: dict[str, Any], shape: tuple[int, ...]
) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) '
        "{ y = Relu (x) }"
    )
    for name in ("N", "", "unk__30"):  # the last is what tf2onnx writes where there is no name
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        if name != "N":
            keywords = {key: value for key, value in keywords.items() if key != "dims"}
            shape = shape if "shapes" in keywords else (3, 4)
        archive = popc.compile(model, options={"batch_size": 3}, **keywords)
        assert archive.manifest.inputs[0].shape == shape
