"""The backend tests that ship inside the onnx package, as plain cases."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

HERE = Path(__file__).resolve().parent
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
GROUPS = ("node", "pytorch-converted", "pytorch-operator", "simple")

# Expected values that carry the rounding of a transform in float32, and are 0.
_NOISE: Final = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}


@dataclass(frozen=True, slots=True)
class Case:
    """A model with one or more sets of inputs and expected outputs."""

    group: str
    name: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The model's inputs without the weights that old models list among them."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return [info for info in self.model.graph.input if info.name not in weights]


def node_names() -> list[str]:
    """Names of the node tests that popc is measured by."""
    lines = (HERE / "node_core.tsv").read_text().splitlines()
    return [line.split("\t")[0] for line in lines if line and not line.startswith("#")]


@cache
def cases(group: str) -> dict[str, Case]:
    """The cases of a group by name.  Node tests are generated, which takes some seconds."""
    if group == "node":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy overflows in the making of some cases
            found = {case.name: case for case in collect_testcases(None)}
        return {name: _generated(found[name]) for name in node_names()}
    return {case.name: case for case in _stored_cases(group)}


def _generated(case: TestCase) -> Case:
    assert case.model is not None, case.name
    assert case.data_sets is not None, case.name
    data_sets = tuple(
        ([_plain(value) for value in inputs], [_plain(value) for value in outputs])
        for inputs, outputs in case.data_sets
    )
    atol = max(case.atol, _NOISE.get(case.name, 0.0))
    return Case("node", case.name, case.model, data_sets, case.rtol, atol)


def _plain(value: Any) -> Any:
    """A few cases hold their data as ONNX messages."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored_cases(group: str) -> Iterator[Case]:
    for folder in sorted((DATA / group).iterdir()):
        model = onnx.load(folder / "model.onnx")
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [info for info in model.graph.input if info.name not in weights]
        data_sets = tuple(
            (_read(data, "input", inputs), _read(data, "output", list(model.graph.output)))
            for data in sorted(folder.glob("test_data_set_*"))
        )
        yield Case(group, folder.name, model, data_sets, rtol=1e-3, atol=1e-5)


def _read(folder: Path, kind: str, infos: list[onnx.ValueInfoProto]) -> list[Any]:
    return [
        _decode((folder / f"{kind}_{index}.pb").read_bytes(), info.type)
        for index, info in enumerate(infos)
    ]


def _decode(data: bytes, type_: onnx.TypeProto) -> Any:
    if type_.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if type_.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))
