"""What users do wrong when they build a model: the class of the error, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc import popart
from popc.popart import Builder, TensorInfo, popart_exception

Call = Callable[[Builder, str], object]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda b, x: b.aiOnnx.abs([]), popart_exception, (r"Abs has invalid number of inputs 0\. "
         r"Must be between 1\.\.1")),
        (lambda b, x: b.aiOnnx.concat([], 0), popart_exception, r"Must be between 1\.\.inf"),
        (lambda b, x: b.aiOnnx.rnn([x] * 3, 3), popart_exception, (r"RNN has an invalid number of "
         r"outputs 3\. Must be between 0\.\.2")),
        (lambda b, x: b.aiOnnx.abs(["y"]), popart_exception, "Unknown tensor 'y' .*'input'"),
        (lambda b, x: Builder().aiOnnx.abs(["y"]), popart_exception, "no valid tensors yet"),
        (lambda b, x: b.aiOnnx.add(0, 0), TypeError, (r"add\(\): incompatible function arguments\. "
         "The following argument types are supported:")),
        (lambda b, x: b.aiOnnx.add(x), TypeError, r"add\(\): incompatible"),
        (lambda b, x: b.aiOnnx.add([x, x], 1, 0, "v6"), TypeError, r"add\(\): incompatible"),
        (lambda b, x: b.aiOnnx.conv(), TypeError, r"conv\(\): incompatible function"),
        (lambda b, x: b.aiOnnx.flatten([x], 1.5), TypeError, r"flatten\(\): incompatible"),
        (lambda b, x: b.aiOnnx.flatten([x], axes=1), TypeError, r"flatten\(\): incompatible"),
        (lambda b, x: b.aiOnnx.cast([x], "FLOATS"), popart_exception, "no ONNX type FLOATS, they"),
        (lambda b, x: b.aiOnnx.range([x]), AttributeError, "'AiOnnxOpset10'.*'range'"),
        (lambda b, x: (b.aiOnnx, b.aiOnnxOpset9), RuntimeError, ("Invalid opset 'aiOnnxOpset9' "
         "selected. Opset for domain ai.onnx already defined as 10")),
        (lambda b, x: b.aiOnnxOpset5, KeyError, "aiOnnxOpset5"),
        (lambda b, x: Builder(opsets={"ai.onnx": 9}), KeyError, "ai.graphcore"),
        (lambda b, x: Builder(opsets={"ai.onnx": 9, "ai.graphcore": 2}), ValueError, "version: 2"),
        (lambda b, x: b.nothing, AttributeError, "nothing"),
        (lambda b, x: b.aiOnnx.pad([x], [1] * 4), popart_exception, (r"Padding vector \(length 4\) "
         "doesn't contain 2 entries per input dimension 3")),
        (lambda b, x: b.aiOnnx.split([x], 2, axis=5), popart_exception, "Invalid value of attribu"),
        (lambda b, x: b.aiOnnx.split([x], 2, split=[1]), popart_exception, "Mismatch between"),
        (lambda b, x: b.aiOnnx.split([x], 2, 2, [1, 1]), popart_exception, "Mismatch between"),
        (lambda b, x: b.aiOnnx.split([x], 3, 1), popart_exception, "The input is not evenly"),
        (lambda b, x: b.aiGraphcore.subsample([x], [1, 0, 1]), popart_exception, ("Strides "
         "invalid. 0 stride at index 1")),
        (lambda b, x: b.aiGraphcore.copyvarupdate([x]), popart_exception, "should have two args"),
        (lambda b, x: b.aiGraphcore.copyvarupdate([x, x]), popart_exception, ("The first arg of "
         "copyvarupdate should be an initalised tensor")),
        (lambda b, x: b.aiGraphcore.multiconv([]), popart_exception, "no inputs"),
        (lambda b, x: b.aiGraphcore.multiconv([[x]]), popart_exception, "at least two inputs"),
        (lambda b, x: b.aiGraphcore.multiconv([[x, x]], pads=[[0], [0]]), popart_exception,
         r"number of pads parameter sets \(2\) does not match the number of input sets \(1\)"),
        (lambda b, x: b.addUntypedInputTensor(), popart_exception, "Can not add untyped tensors"),
        (lambda b, x: b.addInputTensorFromParentGraph(x), popart_exception, "unrecognised Tensor"),
        (lambda b, x: b.addInitializedInputTensor([1.0]), TypeError, "incompatible function"),
        (lambda b, x: b.addInitializedInputTensor(np.zeros(2)), popart_exception, ("No numpy type "
         "float64 registered in map to DataType")),
        (lambda b, x: b.customOp("A", 1, "d", [x], {"k": [1, 2.0]}), popart_exception, ("match"
         "ed python list type")),
        (lambda b, x: b.customOp("A", 1, "d", [x], {"k": None}), popart_exception, "'k'"),
        (lambda b, x: b.virtualGraph(x, 1.5), TypeError, r"virtualGraph\(\): incompatible"),
    ],
)  # fmt: skip
def test_mistakes(call: Call, kind: type[Exception], message: str) -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 4, 3])
    with pytest.raises(kind, match=message):
        call(builder, x)


_CONV: Any = {"dilations": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1]}


@pytest.mark.parametrize(
    ("weights", "changed", "message"),
    [
        ([4, 2, 3, 3], {"strides": [1]}, "Length of strides vector 1 != number of spatial dim"),
        ([4, 2, 3, 3], {"pads": [0, 0]}, r"Padding vector \(length 2\) does not have 2 values for"),
        ([4, 2, 3, 3], {"dilations": [1]}, "Length of dilations vector 1 != number of spatial dim"),
        ([4, 2, 1, 1], {"kernel_shape": [3, 3]}, (r"kernel_shape, \[3 3\], does not match inferred "
         r"shape from weight input 'input/1', \[1 1\]")),
        ([4, 2, 9, 9], {}, r"invalid spatial output shape: \[-2 -2\]"),
    ],
)  # fmt: skip
def test_windows_that_do_not_fit(weights: list[int], changed: Any, message: str) -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 6, 6])
    w = builder.addInputTensor("FLOAT", weights)
    with pytest.raises(popart_exception, match=message):
        builder.aiOnnx.conv([x, w], **{**_CONV, **changed})


def test_models_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(popart_exception, match="Failed to load a ModelProto from the string 'abc'"):
        Builder("abc")
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(popart_exception, match="Failed to parse ModelProto from file"):
        Builder(str(path))


def test_a_model_of_another_opset_needs_its_methods() -> None:
    first = Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    x = first.addInputTensor("FLOAT", [2])
    first.addOutputTensor(first.aiOnnx.relu([x]))
    second = Builder(first.getModelProto())
    with pytest.raises(popart_exception, match=r"Invalid opset 10 used to add an operation. Opset "
                       "for domain ai.onnx already defined as 9"):  # fmt: skip
        second.aiOnnx.relu([x])


def test_the_checker_of_onnx_raises_runtime_errors(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.relu([x])
    builder.addNodeAttribute("nonsense", 1, {y})
    with pytest.raises(RuntimeError, match="nonsense"):
        builder.saveModelProto(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        ("popart_internal_exception", ("popart_exception",)),
        ("popart_runtime_error", ("popart_exception",)),
        ("OutOfMemoryException", ("popart_exception",)),
        ("poplibs_exception", ()),
        ("poplar_runtime_error", ("poplar_exception",)),
        ("poplar_application_runtime_error", ("poplar_runtime_error",)),
        (
            "poplar_recoverable_runtime_error",
            ("poplar_system_runtime_error", "poplar_runtime_error"),
        ),
    ],
)
def test_the_tree_of_exceptions(kind: str, parents: tuple[str, ...]) -> None:
    found = getattr(popart, kind)
    for parent in parents:
        assert issubclass(found, getattr(popart, parent))
    assert not issubclass(found, RuntimeError)
    error = (
        found("what") if kind != "OutOfMemoryException" else found(popart.OutOfMemoryError("what"))
    )
    assert error.args[0] == str(error) == "what"


def test_infos_need_known_types() -> None:
    for arguments in ((float, [2]), (np.complex64, [2])):
        with pytest.raises(KeyError):
            TensorInfo(*arguments)
    with pytest.raises(TypeError, match="Can not create TensorInfo with args"):
        TensorInfo("FLOAT")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b, x: b.aiOnnx.matmul([x, x]), "contracting dimensions unequal: lhs 'input' [2 3]"),
        (
            lambda b, x: b.aiOnnx.add([x, b.aiOnnx.constant(np.zeros(2, np.float32))], "sum"),
            "np broadcasting failed on 'Op sum (ai.onnx.Add:7)', frames [2, 3] and [2] are not",
        ),
        (lambda b, x: b.aiOnnx.transpose([x], [1, 0, 2]), "Rank of permutation tensor [1 0 2]"),
    ],
)
def test_operands_that_do_not_fit(build: Callable[[Any, str], str], text: str) -> None:
    builder = popart.Builder()
    result = build(builder, builder.addInputTensor("FLOAT", [2, 3]))
    with pytest.raises(popart.popart_exception, match=re.escape(text)):
        popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [result]),
            popart.DeviceManager().createCpuDevice(),
        )
