"""What is encoded at all, and into what results: the compiler and the runtime have to agree."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc.ops import OPS
from popc_runtime.device.native_binder import NativeBinder, is_native
from popc_runtime.errors import DeviceError
from popc_runtime.format import DType, Instruction
from popc_runtime.kernels import KERNELS, prepare
from popc_runtime.native import Library, NativeProgram, Record, native_opcodes, translate
from popc_runtime.native.encoding import strided_results
from popc_runtime.native.views import as_view, filled, view_of_numbers
from tests.native.bindings import bound, encode
from tests.support.models import affine, executable


def test_results_that_the_compiler_lays_out_are_written_so() -> None:
    laid = {opcode for opcode, spec in OPS.items() if spec.strided_output}
    assert laid & native_opcodes() <= strided_results()


_WIDE = (2,) * 9
_X = np.arange(512, dtype=np.float32).reshape(_WIDE)
_WIDE_CASES: list[tuple[str, list[Any], Any, dict[str, Any]]] = [
    ("ReduceMean", [_X], np.empty(_WIDE[1:], np.float32), {"axes": (8,)}),
    ("Gather", [np.ones((5, 3), np.float32), np.zeros((1,) * 8, np.int64)],
     np.empty((1,) * 8 + (3,), np.float32), {"axis": 0}),
    ("Fill", [], np.empty(_WIDE, np.float32), {"value": 3.0}),
    ("Add", [_X, _X], np.empty_like(_X), {}),
    ("Transpose", [_X], np.empty_like(_X), {"perm": (8, 7, 6, 5, 4, 3, 2, 1, 0)}),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "inputs", "out", "attributes"), _WIDE_CASES)
def test_many_dimensions_are_left_to_numpy(
    library: Library, opcode: str, inputs: list[Any], out: Any, attributes: dict[str, Any]
) -> None:
    """And of its calls those are translated that are possible."""
    binding = bound(inputs, [out], attributes)
    assert encode(opcode, binding, library.numbers) is None
    records = [translate(call, library.numbers) for call in prepare(KERNELS[opcode], binding)]
    NativeProgram(library, [record for record in records if record is not None], binding, 1)


def test_numbers_of_numpy_are_translated(library: Library) -> None:
    to = np.zeros(3, np.float32)
    for value in (np.float32(2), 2, 2.0):
        record = translate(partial(np.copyto, to, value), library.numbers)
        assert record is not None
        NativeProgram(library, [record], to, 1).run()
        assert to.tolist() == [2, 2, 2]
        to[:] = 0
    assert translate(partial(np.copyto, to, np.float64(2)), library.numbers) is not None
    assert translate(partial(np.copyto, to, np.int64(2)), library.numbers) is None


@pytest.mark.parametrize(("dtype", "large"), [(DType.FLOAT16, 1e5), (DType.FLOAT32, 1e39)])
def test_numbers_that_are_too_large_become_infinite(dtype: DType, large: float) -> None:
    assert filled((2,), dtype, -large).tolist() == [-np.inf, -np.inf]
    assert view_of_numbers([1.0, large, 2.0], dtype).tolist() == [1, np.inf, 2]


def test_what_cannot_be_bound_is_named(library: Library, tmp_path: Path) -> None:
    del library
    (engine,) = executable(affine(), tmp_path)._engine.replicas
    binder = engine.binder
    assert isinstance(binder, NativeBinder)
    unknown = Instruction("HostLoad", (), (0,), {"stream": "none"}, "load")
    with pytest.raises(
        DeviceError, match=r"HostLoad \(load\) cannot be prepared to run: 'none' is missing"
    ):
        binder.block((unknown,))
    step = binder.native(Instruction("Gather", (), (), {}, "rows"), Record("Gather", ()))
    with pytest.raises(
        DeviceError, match=r"Gather \(rows\) cannot be prepared to run: record 0 is"
    ) as caught:
        binder.walker([step])
    assert caught.value.subject == "rows"


def test_transfers_of_many_dimensions(library: Library, tmp_path: Path) -> None:
    """From memory that is not contiguous: numpy makes it so."""
    del library
    model = executable(affine(), tmp_path)
    (engine,) = model._engine.replicas
    memory = engine.program.memory
    memory._arrays[0], memory._views[0] = _X.T, as_view(_X.T)
    store = Instruction("HostStore", (0,), (), {"stream": "y"}, "store")
    steps = engine.binder.block((store,))
    assert not any(is_native(step) for step in steps)
    stored: list[bytes] = []
    model._results["y"].take = lambda memory: stored.append(bytes(memory))
    engine.binder.walker(steps)()
    assert stored == [_X.T.tobytes()]
