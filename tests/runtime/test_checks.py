"""Floating-point checks: which op is blamed for what, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.device import checks
from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.format import Array, FloatCheck
from popc_runtime.kernels import KERNELS

if TYPE_CHECKING:
    import numpy.typing as npt

_HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
_INF, _NAN = float("inf"), float("nan")


def _load(
    folder: Path, body: str | onnx.ModelProto, options: Mapping[str, Any] | None = None, **how: Any
) -> popc_runtime.Executable:
    model = parser.parse_model(_HEADER + body) if isinstance(body, str) else body
    given = {"verify_ir": True, **(options or {})}
    archive = popc.compile(model, options=given).save(folder / "m.popx", force=True)
    return popc_runtime.load(archive, **how)


def _failure(executable: popc_runtime.Executable, **inputs: object) -> str:
    """Subject and text of the error of a run; "" if it succeeds."""
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    try:
        executable.run(arrays)
    except DeviceError as error:
        return f"{error.subject}: {error}"
    return ""


def _float32(values: npt.ArrayLike) -> Array:
    return np.array(values, np.float32)


def _unary(op: str, dtype: str = "float") -> str:
    return f"m ({dtype}[2,3] x) => ({dtype}[2,3] y) {{ [it] y = {op} }}"


@pytest.mark.parametrize(
    ("op", "x", "kind", "elements"),
    [
        ("Sqrt(x)", [[1, 2, 3], [-1, 4, -9]], "invalid", "NaN in 2 of 6 elements, first at [1, 0]"),
        ("Sub(x, x)", [[1, 2, _INF]] * 2, "invalid", "NaN in 2 of 6 elements, first at [0, 2]"),
        ("Log(x)", [[1, 2, 3], [4, 5, 0]], "div0", "infinity in 1 of 6 elements, first at [1, 2]"),
        ("Reciprocal(x)", np.eye(2, 3), "div0", "infinity in 4 of 6 elements, first at [0, 1]"),
        ("Exp(x)", [[1, 2, 89]] * 2, "overflow", "infinity in 2 of 6 elements, first at [0, 2]"),
        ("Mul(x, x)", [[1, 2, 3]] * 2, "", ""),
        ("Neg(x)", [[1, _NAN, _INF]] * 2, "", ""),
        ("Sqrt(x)", [[-1, _NAN, 1]] * 2, "", ""),
        ("Exp(x)", [[1000, _INF, 1]] * 2, "", ""),
    ],
)
def test_definitions(tmp_path: Path, op: str, x: npt.ArrayLike, kind: str, elements: str) -> None:
    """An operand that is NaN or infinite itself excuses the whole result."""
    executable = _load(tmp_path, _unary(op), {"enable_floating_point_checks": True})
    text = _failure(executable, x=_float32(x))
    if not kind:
        assert not text
        return
    assert f"floating-point exception ({kind}) in {op.split('(', maxsplit=1)[0]} (it)" in text
    assert f"result 'y', float32[2,3]: {elements}; " in text
    assert text.startswith("it: ")
    others = [check for check in FloatCheck if check.value != kind]
    assert not _failure(_load(tmp_path, _unary(op), floating_point_checks=others), x=_float32(x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_types(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes

    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64}[dtype]
    large = {"float16": 300.0, "bfloat16": 1e20, "double": 1e200}[dtype]
    executable = _load(tmp_path, _unary("Mul(x, x)", dtype), floating_point_checks=True)
    assert not _failure(executable, x=np.ones((2, 3), kind))
    text = _failure(executable, x=np.array([[1, 1, 1], [1, large, 1]], kind))
    assert f"{np.dtype(kind).name}[2,3]: infinity in 1 of 6 elements, first at [1, 1]" in text
    assert not _failure(executable, x=np.full((2, 3), _INF, kind))


def test_choices(tmp_path: Path) -> None:
    """The archive says what is looked for; the one who loads it may say otherwise."""
    x = _float32([[1, 2, -1], [4, 5, 0]])
    body = _unary("Log(x)")
    assert not _failure(_load(tmp_path, body), x=x)
    text = _failure(_load(tmp_path, body, floating_point_checks=True), x=x)
    assert "result 0, float32[2,3]: NaN" in text  # without the option names are not known
    chosen = {"enable_floating_point_checks": True, "floating_point_exceptions": ["div0"]}
    executable = _load(tmp_path, body, chosen)
    assert executable.manifest.floating_point_checks == (FloatCheck.DIV0,)
    assert "exception (div0)" in _failure(executable, x=x)
    assert "exception (div0)" in _failure(
        _load(tmp_path, body, chosen, floating_point_checks=True), x=x
    )
    assert not _failure(_load(tmp_path, body, chosen, floating_point_checks=False), x=x)
    with pytest.raises(UsageError, match="'underflow' is not a valid FloatCheck"):
        _load(tmp_path, body, floating_point_checks=["underflow"])


def test_operands_that_are_overwritten(tmp_path: Path) -> None:
    """A chain in place: the operands are looked at before."""
    body = """m (float[4] x) => (float[4] y) {
        a = Relu(x)  b = Neg(a)  [sqrt] c = Sqrt(b)  [add] y = Add(c, c)
    }"""
    executable = _load(tmp_path, body, {"enable_floating_point_checks": True})
    assert "in Sqrt (sqrt)" in _failure(executable, x=_float32([0, 0, 0, 2]))
    assert not _failure(executable, x=_float32([0, -1, 0, -3]))
    assert not _failure(executable, x=_float32([0, _NAN, 0, 2]))


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (
            "m (float[3] x) => (float[4] y) <int64[2] p={1,0}, float v={-inf}> {y = Pad(x, p, v)}",
            {"x": np.zeros(3)},
        ),
        (
            "m (float[3] x) => (float[3] y) <float[3] v = {-inf, 0, 1}> { y = Add(x, v) }",
            {"x": np.zeros(3)},
        ),
        (
            "m (float[3] x, bool[3] b) => (float[3] y) <float v = {-inf}> { y = Where(b, x, v) }",
            {"x": np.zeros(3), "b": np.array([True, False, True])},
        ),
    ],
)
def test_infinities_that_are_meant(tmp_path: Path, body: str, inputs: Mapping[str, Any]) -> None:
    executable = _load(tmp_path, body, {"enable_floating_point_checks": True})
    given = {n: a if a.dtype == np.bool_ else a.astype(np.float32) for n, a in inputs.items()}
    assert not _failure(executable, **given)


def test_loops(tmp_path: Path) -> None:
    """The iteration is told, of each loop around the op."""
    body = """m (float[2] x) => (float[2] y) <int64 trips = {5}> {
        y = Loop(trips, , x) <body = step (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity(c)  [square] t = Mul(s, s)
        }>
    }"""
    options = {"enable_floating_point_checks": True, "batches_per_step": 3}
    executable = _load(tmp_path, body, options)
    x = _float32([[1.0, 1.0], [2.0, 1.0], [1.0, 1e12]])
    text = _failure(executable, x=x)
    assert "exception (overflow) in Mul (square)" in text
    assert "in iteration 1 (from 0) of " in text
    assert "in iteration 2 (from 0) of stepLoop" in text


def test_branches_and_fused_ops(tmp_path: Path) -> None:
    body = """m (float[2,2] x, bool b) => (float[2,2] y) {
        y = If(b) <
            then_branch = a () => (float[2,2] p) { [log] p = Log(x) },
            else_branch = c () => (float[2,2] q) { [product] r = MatMul(x, x)  q = Relu(r) }
        >
    }"""
    executable = _load(tmp_path, body, {"enable_floating_point_checks": True})
    assert "(div0) in Log (log)" in _failure(executable, x=_float32(np.eye(2)), b=True)
    assert not _failure(executable, x=_float32(np.eye(2)), b=False)
    text = _failure(executable, x=_float32(np.eye(2) * 1e30), b=False)
    assert "(overflow) in MatMul (product)" in text


@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16"])
def test_steps_of_chains(tmp_path: Path, dtype: str) -> None:
    """As if each were an instruction of its own, also where a later step hides what it made."""
    import ml_dtypes

    kind = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    body = f"""m ({dtype}[2,3] x, {dtype}[3] z) => ({dtype}[2,3] y) {{
        [add] a = Add(x, z)  [exp] b = Exp(a)  [tanh] c = Tanh(b)  [log] y = Log(c)
    }}"""
    x, z = np.zeros((2, 3), kind), np.zeros(3, kind)
    apart: dict[str, Any] = {"disabled_passes": ["fuse_elementwise"]}
    chain = _load(tmp_path, body, floating_point_checks=True)
    assert {step.opcode for step in chain.profile({"x": x, "z": z})} >= {"FusedElementwise"}
    (checked,) = chain.run({"x": x, "z": z}).values()
    (plain,) = _load(tmp_path, body, engine="numpy").run({"x": x, "z": z}).values()
    assert checked.tobytes() == plain.tobytes()
    for place, number, text in [
        ((0, 0), 0.0, ""),
        ((0, 1), 100.0, "exp: floating-point exception (overflow) in Exp (exp)"),
        ((1, 2), -2000.0, "log: floating-point exception (div0) in Log (log)"),
        ((1, 0), -_INF, ""),
    ]:
        changed = x.copy()
        changed[place] = number
        found = _failure(chain, x=changed, z=z)
        assert found.startswith(text)
        assert bool(found) == bool(text) or number == -_INF
        alone = _load(tmp_path, body, apart, floating_point_checks=True)
        assert found == _failure(alone, x=changed, z=z)


def test_what_depends_on_constants_alone_is_not_checked(tmp_path: Path) -> None:
    """Whether it was computed before or when the archive is loaded must make no difference."""
    body = """m (float[3] x) => (float[3] y) <float[3] z = {0, 1, 2}> {
        l = Log(z)  y = Add(x, l)
    }"""
    for limit in (0, 65536):
        options = {"enable_floating_point_checks": True, "fold_limit_bytes": limit}
        assert not _failure(_load(tmp_path, body, options), x=_float32([1, 2, 3]))


def test_nan_on_overflow(tmp_path: Path) -> None:
    """Results become NaN, and a run fails only if invalid is looked for, too."""
    body = _unary("Mul(x, x)", "float16")
    x = np.array([[1, 300, 200], [-300, -_INF, 0]], np.float16)
    options = {"enable_floating_point_checks": True}
    exceptions = ["nan_on_overflow"]
    executable = _load(tmp_path, body, {**options, "floating_point_exceptions": exceptions})
    (y,) = executable.run({"x": x}).values()
    assert np.array_equal(
        y, np.array([[1, _NAN, 40000], [_NAN, _INF, 0]], np.float16), equal_nan=True
    )
    both = {**options, "floating_point_exceptions": ["nan_on_overflow", "invalid"]}
    assert "NaN in 2 of 6" in _failure(_load(tmp_path, body, both), x=x)
    assert not _failure(_load(tmp_path, body, options), x=x)  # an operand is infinite


def test_nan_on_overflow_without_checks(tmp_path: Path) -> None:
    """Both engines do it; of a chain of ops, each by itself."""
    body = "m (float16[4] x) => (float16[4] y) { a = Mul(x, x) y = Min(a, x) }"
    x = np.array([1, 300, 200, -_INF], np.float16)
    for engine in ("numpy", "native"):
        executable = _load(tmp_path, body, {"nan_on_overflow": True}, engine=engine)
        (y,) = executable.run({"x": x}).values()
        assert np.array_equal(y, np.array([1, _NAN, 200, -_INF], np.float16), equal_nan=True)


def test_checks_cost_nothing_when_they_are_off(tmp_path: Path) -> None:
    body = """m (float[4] x) => (float[4] y) { a = Exp(x)  b = Log(a)  y = Add(b, x) }"""
    steps: Sequence[Any] = []
    counts = []
    for given in (False, True):
        executable = _load(tmp_path, body, floating_point_checks=given)
        steps = executable.profile({"x": np.ones(4, np.float32)})
        counts.append(len(steps))
    assert counts[0] < counts[1]


def test_every_pole_is_an_instruction() -> None:
    assert checks.POLES.issubset(KERNELS)
    assert checks.UNCHECKED.issubset(KERNELS)
