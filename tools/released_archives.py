"""Small archives of the format that this popc writes, which all later runtimes have to read.

    python -m tools.released_archives tests/golden/archives

A folder for each minor version of the format, and beside the folders what the programs compute, by
onnxruntime.  What exists stays as it is: an archive of a released format is never written again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popc
from popc_runtime.format.header import FORMAT_VERSION

__all__ = ["ACME", "NEEDED", "RATE"]

ACME: Final = "com.acme"
RATE: Final = 0.125  # of learning
# Which minor version brought what a program needs; the others are of all versions.
NEEDED: Final = {"shapes": 3, "custom": 4, "labels": 4, "sizes": 6, "names": 7, "bytes": 8}
_FLOAT: Final = TensorProto.FLOAT
_INT64: Final = TensorProto.INT64


def main(arguments: Sequence[str]) -> int:
    """Write the archives that are not there yet."""
    folder = Path(arguments[0]) if arguments else Path("tests/golden/archives")
    minor = FORMAT_VERSION[1]
    here = folder / f"{FORMAT_VERSION[0]}.{minor}"
    here.mkdir(parents=True, exist_ok=True)
    for name, (make, keywords) in _PROGRAMS.items():
        model = make()
        _expect(folder / f"{name}.npz", model, name)
        path = here / f"{name}.popx"
        if NEEDED.get(name, 0) <= minor and not path.exists():
            if name == "custom":
                popc.custom.register(
                    ACME, "Cube", types=popc.custom.like_first, compute=lambda x, _: x[0] ** 3
                )
            popc.compile(model, **keywords).save(path)
            print(f"{path.stat().st_size:>7,}  {path}")
    return 0


def _expect(path: Path, model: onnx.ModelProto, name: str) -> None:
    """Keep inputs and what onnxruntime makes of them, once for all formats."""
    if name in {"training", "custom"} or path.exists():  # tests compute these by numpy
        return
    import onnxruntime

    inputs = {each.name: _input(each) for each in model.graph.input}
    settings = onnxruntime.SessionOptions()
    # Its optimisations put floats of eight bits where it has no kernels for them.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    results = session.run(None, inputs)
    outputs = {
        f"out {each.name}": np.asarray(result, dtype=np.str_ if name == "labels" else None)
        for each, result in zip(model.graph.output, results, strict=True)
    }
    kept: dict[str, Any] = {f"in {key}": value for key, value in inputs.items()} | outputs
    np.savez_compressed(path, allow_pickle=False, **kept)


def _input(value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    tensor = value.type.tensor_type
    shape = [each.dim_value or 4 for each in tensor.shape.dim]
    if tensor.elem_type == _INT64:
        return np.asarray(np.arange(7, 7 + 7 * prod(shape), 7).reshape(shape) % 5)
    return np.asarray(6 * _weights(*shape))


def _model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, tuple[int, Sequence[int | str]]],
    weights: Mapping[str, Any] | None = None,
    **domains: int,
) -> onnx.ModelProto:
    def described(values: Mapping[str, tuple[int, Sequence[int | str]]]) -> list[Any]:
        return [helper.make_tensor_value_info(key, *value) for key, value in values.items()]

    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), name, described(inputs), described(outputs), stored)
    opsets = [helper.make_opsetid("", 17)]
    opsets += [helper.make_opsetid(key.replace("_", "."), value) for key, value in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _weights(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between -1/4 and 1/4, the same in every version of everything."""
    places = np.arange(prod(shape)) * 37 % 101
    return (places.reshape(shape) / 202 - 0.25).astype(np.float32)


def _image() -> onnx.ModelProto:
    """A convolutional network, with panels of weights where the format has them."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k", "kb"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "d"], ["dw"], group=16, pads=[1, 1, 1, 1]),
        node("Resize", ["dw", "", "twice"], ["up"], mode="linear"),
        node("Add", ["up", "r"], ["s"]),
        node("GlobalAveragePool", ["s"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w", "wb"], ["logits"], transB=1),
        node("Softmax", ["logits"], ["y"]),
    ]
    weights = {
        "k": _weights(16, 3, 3, 3), "kb": _weights(16), "one": np.full(16, 1.5, np.float32),
        "zero": _weights(16), "d": _weights(16, 1, 3, 3), "w": _weights(17, 16),
        "wb": _weights(17), "twice": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return _model("image", nodes, {"x": (_FLOAT, [1, 3, 8, 8])}, {"y": (_FLOAT, [1, 17])}, weights)


def _sequence() -> onnx.ModelProto:
    """Embeddings, a recurrent layer, attention, and places of the best."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "words"], ["e"]),
        node("LSTM", ["e", "lw", "lr", "lb"], ["all"], hidden_size=8),
        node("Squeeze", ["all", "ones"], ["h"]),
        node("Transpose", ["h"], ["q"], perm=[1, 0, 2]),
        node("Transpose", ["h"], ["t"], perm=[1, 2, 0]),
        node("MatMul", ["q", "t"], ["scores"]),
        node("Softmax", ["scores"], ["a"]),
        node("MatMul", ["a", "q"], ["mixed"]),
        node("LayerNormalization", ["mixed", "scale"], ["normal"]),
        node("Erf", ["normal"], ["y"]),
        node("TopK", ["y", "three"], ["best", "places"]),
    ]
    weights = {
        "table": _weights(5, 8), "lw": _weights(1, 32, 8), "lr": _weights(1, 32, 8),
        "lb": _weights(1, 64), "scale": _weights(8), "ones": np.array([1]), "three": np.array([3]),
    }  # fmt: skip
    outputs = {
        "y": (_FLOAT, [2, 6, 8]), "best": (_FLOAT, [2, 6, 3]), "places": (_INT64, [2, 6, 3])
    }  # fmt: skip
    return _model("sequence", nodes, {"words": (_INT64, [6, 2])}, outputs, weights)


def _control() -> onnx.ModelProto:
    """A loop whose trip count is an input, and a branch."""
    node, value = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["still"]), node("Add", ["a", "x"], ["b"])],
        "body",
        [value("i", _INT64, []), value("go", TensorProto.BOOL, []), value("a", _FLOAT, [4])],
        [value("still", TensorProto.BOOL, []), value("b", _FLOAT, [4])],
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["sum"], [name])], name, [], [value(name, _FLOAT, [4])]
        )
        for name, op in (("then", "Exp"), ("else", "Neg"))
    }
    nodes = [
        node("Loop", ["n", "", "x"], ["sum"], body=body),
        node("ReduceSum", ["sum"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], **branches),
    ]
    inputs = {"n": (_INT64, []), "x": (_FLOAT, [4])}
    return _model("control", nodes, inputs, {"y": (_FLOAT, [4])}, {"zero": np.float32(0)})


def _types() -> onnx.ModelProto:
    """Halves, bytes, integers and truth values."""
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        node("MatMul", ["half", "w"], ["m"]),
        node("Cast", ["m"], ["wide"], to=_FLOAT),
        node("QuantizeLinear", ["wide", "step", "middle"], ["bytes"]),
        node("DequantizeLinear", ["bytes", "step", "middle"], ["back"]),
        node("Greater", ["back", "x"], ["more"]),
        node("Where", ["more", "back", "x"], ["y"]),
        node("ArgMax", ["y"], ["place"], axis=1),
        node("CumSum", ["place", "axis"], ["count"]),
    ]
    weights = {
        "w": _weights(4, 4).astype(np.float16), "step": np.float32(1 / 16), "middle": np.uint8(128),
        "axis": np.int64(0),
    }  # fmt: skip
    outputs = {
        "y": (_FLOAT, [3, 4]),
        "count": (_INT64, [3, 1]),
        "bytes": (TensorProto.UINT8, [3, 4]),
    }
    return _model("types", nodes, {"x": (_FLOAT, [3, 4])}, outputs, weights)


def _linear(rows: int | str) -> onnx.ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    weights = {"w": _weights(3, 2), "b": _weights(2)}
    return _model("linear", nodes, {"x": (_FLOAT, [rows, 3])}, {"y": (_FLOAT, [rows, 2])}, weights)


def _custom() -> onnx.ModelProto:
    node = helper.make_node("Cube", ["x"], ["y"], domain=ACME)
    return _model("custom", [node], {"x": (_FLOAT, [4])}, {"y": (_FLOAT, [4])}, com_acme=1)


def _labels() -> onnx.ModelProto:
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
        keys_int64s=[0, 1, 2, 3], values_strings=["red", "green", "blue", "white"],
        default_string="none",
    )  # fmt: skip
    outputs = {"y": (TensorProto.STRING, [4])}
    return _model("labels", [node], {"x": (_INT64, [4])}, outputs, ai_onnx_ml=2)


_TRAIN: Final = {
    "loss": {"type": "mse", "input": "y", "label": "t"},
    "optimizer": {"type": "sgd", "learning_rate": {"value": RATE, "const": False}},
}


def _sizes() -> onnx.ModelProto:
    """The elements that are larger than 2, and where they are."""
    nodes = [
        helper.make_node("Greater", ["x", "two"], ["m"]),
        helper.make_node("NonZero", ["m"], ["places"]),
        helper.make_node("Compress", ["x", "m"], ["y"], axis=0),
    ]
    places: list[int | str] = [1, "n"]
    outputs = {"places": (_INT64, places), "y": (_INT64, places[1:])}
    weights = {"two": np.int64(2)}
    return _model("sizes", nodes, {"x": (_INT64, [4])}, outputs, weights)


def _names() -> onnx.ModelProto:
    """Twice the input, and the input itself."""
    ends: dict[str, tuple[int, Sequence[int | str]]] = {"x": (_FLOAT, [2, 3])}
    outputs = {**ends, "y": ends["x"]}
    return _model("names", [helper.make_node("Add", ["x", "x"], ["y"])], ends, outputs)


def _bytes() -> onnx.ModelProto:
    """Floats of eight bits: converted, quantised, and as weights."""
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT8E5M2),
        node("Cast", ["narrow"], ["wide"], to=_FLOAT),
        node("QuantizeLinear", ["wide", "step", "zero"], ["bytes"]),
        node("DequantizeLinear", ["bytes", "step", "zero"], ["back"]),
        node("DequantizeLinear", ["w", "step", "zero"], ["weights"]),
        node("MatMul", ["back", "weights"], ["y"]),
    ]
    step = {"step": np.float32(0.5)}
    model = _model("bytes", nodes, {"x": (_FLOAT, [3, 4])}, {"y": (_FLOAT, [3, 2])}, step)
    for name, shape in (("w", (4, 2)), ("zero", ())):
        values = 4 * _weights(*shape) if shape else np.zeros(1)
        narrow = helper.make_tensor(name, TensorProto.FLOAT8E4M3FN, shape, values.reshape(-1))
        model.graph.initializer.append(narrow)
    model.opset_import[0].version = 19
    model.ir_version = 9
    return model


_PROGRAMS: Final[dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any]]]] = {
    "image": (_image, {}),
    "sequence": (_sequence, {}),
    "control": (_control, {}),
    "types": (_types, {}),
    "training": (lambda: _linear(4), _TRAIN),
    "shapes": (lambda: _linear("batch"), {"dims": {"batch": [1, 2, 4]}}),
    "custom": (_custom, {}),
    "labels": (_labels, {}),
    "sizes": (_sizes, {}),
    "names": (_names, {}),
    "bytes": (_bytes, {}),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
