"""Convert a model of another framework to ONNX: run by the interpreter that has the framework.

    PYTHON converter_script.py KIND MODEL RESULT

It needs nothing of popc, and no newer Python than frameworks do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]

_OPSET = 18
_KERAS_WITH_EXPORT = 3
_PADDLE_OPSET = 17  # paddle2onnx knows no newer one well
_TOKENS = 8  # of an example: any number will do


def _run_tf2onnx(*words: str) -> None:
    command = [sys.executable, "-I", "-m", "tf2onnx.convert", "--opset", str(_OPSET), *words]
    code = subprocess.run(command, check=False).returncode  # noqa: S603
    if code:
        sys.exit(code)


def saved_model(model: str, result: str) -> None:
    """A SavedModel of TensorFlow."""
    _run_tf2onnx("--saved-model", model, "--output", result)


def tensorflow_lite(model: str, result: str) -> None:
    """A file of TensorFlow Lite."""
    _run_tf2onnx("--tflite", model, "--output", result)


def keras(model: str, result: str) -> None:
    """A model of Keras 3, or of the Keras that TensorFlow up to 2.15 has."""
    import keras as library

    network = library.models.load_model(model, compile=False)
    if int(library.__version__.split(".")[0]) >= _KERAS_WITH_EXPORT:
        # Said, for otherwise Keras exports no model that has not run.
        signature = [
            library.InputSpec(shape=each.shape, dtype=each.dtype, name=each.name)
            for each in network.inputs
        ]
        given = signature if len(signature) == 1 else [signature]
        network.export(result, format="onnx", input_signature=given, opset_version=_OPSET)
        return
    import tf2onnx

    tf2onnx.convert.from_keras(network, opset=_OPSET, output_path=result)


def paddle(model: str, result: str) -> None:
    """A program of Paddle, with its weights beside it."""
    import paddle2onnx

    program = Path(model)
    weights = program.with_suffix(".pdiparams")
    if program.name == "__model__":
        weights = program.with_name("__params__")
    given = str(weights) if weights.exists() else ""
    # Its optimizers would drop what computes an output that has a wrong name.
    paddle2onnx.export(model, given, result, opset_version=_PADDLE_OPSET, optimize_tool="None")
    _mend_outputs(result)


def _mend_outputs(result: str) -> None:
    """Give an output that is named as an input the result that nothing reads.

    paddle2onnx 2.1 names the input as the output of a program such as data + 1.
    """
    import onnx

    model = onnx.load(result)
    graph = model.graph
    inputs = {info.name for info in graph.input}
    read = {name for node in graph.node for name in node.input}
    read |= {info.name for info in graph.output}
    wrong = [info for info in graph.output if info.name in inputs]
    unread = [name for node in graph.node for name in node.output if name and name not in read]
    if len(wrong) == 1 and len(unread) == 1:
        wrong[0].name = unread[0]
        onnx.save(model, result)


def torch_export(model: str, result: str) -> None:
    """A program that torch.export has saved."""
    import torch

    torch.onnx.export(torch.export.load(model), f=result, dynamo=True)


def transformers(model: str, result: str) -> None:
    """A folder of transformers: the class that its configuration names, with an example."""
    import torch
    import transformers as library

    config = library.AutoConfig.from_pretrained(model, local_files_only=True)
    names = getattr(config, "architectures", None) or ["AutoModel"]
    class_ = getattr(library, names[0])
    config.use_cache = False
    network = class_.from_pretrained(
        model, config=config, local_files_only=True, attn_implementation="eager"
    ).eval()
    inputs, dims = _example(network, config, torch)
    sys.stderr.write(f"{names[0]} with {', '.join(inputs)}\n")
    torch.onnx.export(
        network,
        (),
        result,
        kwargs=inputs,
        input_names=list(inputs),
        dynamic_shapes=dims,
        dynamo=True,
    )


def _example(network: Any, config: Any, torch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs by name, and the names of their open dimensions by axis."""
    main = network.main_input_name
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        image = torch.zeros(2, getattr(config, "num_channels", 3), height, width)
        return {main: image}, {main: {0: "batch"}}
    if main != "input_ids" or getattr(config, "is_encoder_decoder", False):
        sys.exit(
            f"{type(network).__name__} takes {main}: only models that take input_ids alone, or "
            "pixel_values, are converted; export it with torch.onnx.export"
        )
    tokens = torch.ones(2, _TOKENS, dtype=torch.int64)
    dims = {0: "batch", 1: "sequence"}
    mask = tokens.clone()
    mask[0, _TOKENS // 2 :] = 0  # a mask of ones might be left out
    inputs = {"input_ids": tokens, "attention_mask": mask}
    return inputs, dict.fromkeys(inputs, dims)


def main(kind: str, model: str, result: str) -> None:
    """Convert, and tell what did it."""
    globals()[kind](model, result)
    names = {
        "paddle": ("paddle2onnx", "paddlepaddle"),
        "torch_export": ("torch",),
        "transformers": ("torch", "transformers"),
    }
    sys.stdout.write(json.dumps(_versions(names.get(kind, ("tf2onnx", "tensorflow", "keras")))))
    sys.stdout.write("\n")


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
