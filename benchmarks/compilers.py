"""Whole processes that compile, beside IREE and beside what engines do when they load a model.

All get the same files, in which shapes are fixed.  IREE imports a file by one program and compiles
what that has written by another; they are looked for beside Python and on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.processes import installed_python, spent
from benchmarks.subjects import Subject, perceptron, synthetic, trained
from samples.published import resnet50
from tests.zoo.light import picture

__all__ = ["measure_compilers"]

_POPC: Final = "from popc.cli import main; main()"
_ENGINES: Final = {
    "onnxruntime": "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])",
    "openvino": "import sys, openvino; openvino.compile_model(sys.argv[1], 'CPU')",
}
_IREE: Final = ("iree-import-onnx", "iree-compile")
_FOR_THIS_PROCESSOR: Final = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)
_OLDEST_OPSET: Final = 17  # that IREE knows all operators of; it is asked to convert older ones
_MADE: Final = ("bert base", "bert base, 3 layers", "mobilenet v2", "mlp batch 1")


def measure_compilers(*, quick: bool) -> list[dict[str, Any]]:
    """Seconds of each model, by the clock and of processors: medians of processes in turns."""
    tools = {name: found for name in _IREE if (found := _program(name))}
    if len(tools) < len(_IREE):
        print("IREE is not installed: pip install --group rivals")
    return [_row(subject, tools, quick=quick) for subject in _subjects(quick=quick)]


def _subjects(*, quick: bool) -> Iterator[Subject]:
    x = np.ones((1, 16), np.float32)
    yield Subject("small mlp", perceptron(1, (16, 64, 64, 8)), {"x": x})
    yield from trained(["magika", "orientation"] if quick else None)
    yield from (each for each in synthetic(quick=quick) if each.name in _MADE)
    if not quick:
        yield Subject("resnet50", resnet50().SerializeToString(), {"image": picture()})


def _program(name: str) -> str | None:
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(folders))


def _row(subject: Subject, tools: Mapping[str, str], *, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        model = _fixed(subject)
        onnx.save(model, file)
        archive = str(file.with_suffix(".popx"))
        words = ("-q", "compile", str(file), "-o", archive, "--force")
        turns: dict[str, Callable[[], object]] = {"popc": partial(installed_python, _POPC, *words)}
        for name, code in _ENGINES.items():
            if find_spec(name) is not None:
                turns[name] = partial(installed_python, code, str(file))
        if len(tools) == len(_IREE):
            opset = max(opset.version for opset in model.opset_import if not opset.domain)
            turns["iree"] = partial(_iree, tools, file, converts=opset < _OLDEST_OPSET)
        times = _compare(subject.name, turns, 1 if quick else 3)
        size = file.stat().st_size / 1e6
        return {"model": subject.name, "MB": size, **_figures(times)}


def _compare(
    subject: str, turns: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Medians of seconds by the clock and of processors, of those that take the model."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name in list(times):
            start = time.perf_counter(), spent()
            try:
                turns[name]()
            except subprocess.CalledProcessError as error:
                said = str(error.stderr).strip().splitlines() or ["it says nothing"]
                print(f"{name} does not take {subject}: {said[0][:160]}", flush=True)
                del times[name]
            else:
                times[name].append((time.perf_counter() - start[0], spent() - start[1]))
    return {
        name: (median(wall for wall, _ in each), median(used for _, used in each))
        for name, each in times.items()
    }


def _figures(times: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    wall, used = times["popc"]
    for name, (other_wall, other_used) in times.items():
        row |= {f"{name} s": other_wall, f"{name} processor s": other_used}
        if name == "iree":
            row |= {"of IREE's time": wall / other_wall, "of its processor time": used / other_used}
    return row


def _iree(tools: Mapping[str, str], file: Path, *, converts: bool) -> None:
    read, compile_ = (tools[name] for name in _IREE)
    imported, done = str(file.with_suffix(".mlir")), str(file.with_suffix(".vmfb"))
    opset = ("--opset-version", str(_OLDEST_OPSET)) if converts else ()
    for words in (
        (read, *opset, str(file), "-o", imported),
        (compile_, *_FOR_THIS_PROCESSOR, imported, "-o", done),
    ):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(words, check=True, capture_output=True, text=True, env=environment)


def _fixed(subject: Subject) -> onnx.ModelProto:
    """The model with the shapes of what it is fed; inputs that are bound are weights."""
    data = subject.model if isinstance(subject.model, bytes) else subject.model.read_bytes()
    model = onnx.load_model_from_string(data)
    graph = model.graph
    for value in list(graph.input):
        type_ = value.type.tensor_type
        if value.name in subject.bind:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type)
            array = np.array(subject.bind[value.name], dtype)
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
        elif value.name in subject.feeds:
            shape = subject.feeds[value.name].shape
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, type_.elem_type, shape))
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)
