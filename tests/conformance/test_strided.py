"""Every operator on inputs that do not lie in memory in C order.

A kernel that reshapes such an operand while it is bound computes on a copy of what was there then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx
import pytest

from popc.frontend import Bindings, import_model, load_model
from popc_runtime.errors import ModelError, UsageError
from popc_runtime.format import Array
from popc_runtime.kernels import KERNELS
from tests.conformance.adapter import flatten
from tests.conformance.cases import Case, cases
from tests.conformance.expected import EXPECTED_FAILURES
from tests.support.oracles import run_graph

pytestmark = pytest.mark.xdist_group("cases of onnx")  # which take seconds to make


def _reversed_axes(array: Array) -> Array:
    return np.asfortranarray(array)


def _every_other(array: Array) -> Array:
    """The same values as a window of a larger array, two columns apart."""
    if array.ndim == 0:
        return array
    outer = np.zeros((*(size + 2 for size in array.shape[:-1]), 2 * array.shape[-1] + 1))
    window = outer.astype(array.dtype)[
        (*(slice(1, -1) for _ in array.shape[:-1]), slice(1, None, 2))
    ]
    window[...] = array
    return window


def _arrays(case: Case) -> dict[str, Array] | None:
    """The inputs of the first data set if all are tensors of numbers."""
    given = dict(zip((info.name for info in case.inputs()), case.data_sets[0][0], strict=False))
    arrays = {name: np.asarray(value) for name, value in given.items() if value is not None}
    plain = all(info.type.HasField("tensor_type") for info in case.inputs())
    numbers = all(array.dtype.kind not in "OUS" for array in arrays.values())
    return arrays if plain and numbers else None


def _results(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array] | None:
    """The outputs; ``None`` if values decide about shapes, or the model has control flow."""
    shapes = {name: array.shape for name, array in feeds.items()}
    try:
        imported = import_model(load_model(model), Bindings(shapes=shapes))
    except (ModelError, UsageError):
        return None
    graph = imported.graph
    if imported.sizes or any(op.op_type not in KERNELS for op in graph.ops):
        return None
    return run_graph(graph, feeds)


_WAYS: Final = (_reversed_axes, _every_other)


def _wrong(ways: Sequence[Sequence[Callable[[Array], Array]]]) -> list[str]:
    """The cases that are wrong when their inputs lie in these ways, which take turns."""
    wrong: list[str] = []
    checked = 0
    for name, case in cases("node").items():
        arrays = None if f"node/{name}" in EXPECTED_FAILURES else _arrays(case)
        if arrays is None or "dropout" in name:  # a second run draws other numbers
            continue
        for restride in ways[checked % len(ways)]:
            actual = _results(case.model, {key: restride(array) for key, array in arrays.items()})
            if actual is None:
                break
            checked += 1
            expected: list[Any] = flatten(case.data_sets[0][1])
            for ours, theirs in zip(actual, expected, strict=True):
                wanted = theirs.astype(ours.dtype) if theirs.dtype.name == "bfloat16" else theirs
                if not np.allclose(ours, wanted, case.rtol, case.atol, equal_nan=True):
                    wrong.append(f"{name}, {restride.__name__}")
                    break
    assert checked > 1000 * len(ways[0])
    return wrong


def test_node_cases() -> None:
    assert _wrong([[way] for way in _WAYS]) == []


@pytest.mark.slow
def test_node_cases_in_every_way() -> None:
    assert _wrong([_WAYS]) == []
