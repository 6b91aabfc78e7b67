"""Products of small integers: the units take floats, so operands are cast to half precision."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.activation import STEPS
from popc.cost.formulas.numbers import ceil_div
from popc.cost.mapping import device_bytes
from popc.cost.planner import ROWS, ConvProblem
from popc.cost.rules.common import CostRule, one_step_of, residual_and_activation
from popc.cost.rules.matmul import product_sizes
from popc.cost.rules.quantize import round_to_bytes
from popc.cost.work import Work
from popc_runtime.format import DType
from popc_runtime.kernels.parts.byte_operands import BIAS, INTEGER_BIAS, RESIDUAL, SCALE

__all__ = ["RULES"]


def _cast_operands(work: Work) -> None:
    for index in range(2):
        work.cast(work.input(index).dtype, DType.FLOAT16, work.input(index).size)


def _conv(work: Work) -> None:
    x, w, y = work.input(0), work.input(1), work.result()
    group = work.integer("group", 1)
    _cast_operands(work)
    spatial, taps = y.shape[2:], w.shape[2:]
    strides = work.integers("strides", (1,) * len(taps))
    rows = y.size // max(y.shape[0] * y.shape[1] * spatial[-1], 1)
    problem = ConvProblem(
        "half", "float", "float", group, y.shape[0], (rows, spatial[-1]),
        x.shape[1] // group, y.shape[1] // group,
        (w.size // max(w.shape[0] * w.shape[1] * taps[-1], 1), taps[-1]),
        ((strides[-2] if len(strides) > 1 else 1), strides[-1]),
        inputs=(x.size // max(x.shape[0] * x.shape[1] * x.shape[-1], 1), x.shape[-1]),
        inputs_lie=ROWS, weights_lie=ROWS,
    )  # fmt: skip
    work.convolve(problem)
    _take(work, INTEGER_BIAS)
    _follow(work)


def _matmul(work: Work) -> None:
    _cast_operands(work)
    sizes = product_sizes(work.input(0).shape, work.input(1).shape, work.result().size)
    work.matmul(*sizes, DType.FLOAT16, lie=(ROWS, ROWS))
    _follow(work)


def _follow(work: Work) -> None:
    """Add the work after the sums (`popc.ops.integer`), in floats, as the ops that it replaces."""
    floats = DType.FLOAT32
    _take(work, SCALE)
    if "rounding_scale" in work.op.attributes:
        for name in STEPS["FakeQuantize"]:
            one_step_of(work, name, floats)
    _take(work, BIAS)
    residual_and_activation(work, RESIDUAL, floats)
    if "quantize_scale" not in work.op.attributes:
        work.cast(floats, work.result().dtype, work.result().size)
        return
    for name in ("quantize_factor", "quantize_scale"):
        if work.op.attributes.get(name, 1.0) != 1:
            work.binary("add" if name == "quantize_factor" else "divide", dtype=floats)
    round_to_bytes(work, work.result().size)


def _take(work: Work, index: int) -> None:
    """Multiply by operand ``index``, or add it: one number for all, or one for each channel."""
    if not work.has(index):
        return
    numbers, floats = work.input(index).size, DType.FLOAT32
    if numbers > 1:
        share = work.share(work.result().size, floats)
        bytes_ = min(share, numbers) * device_bytes(floats)
        work.receive(f"operand {index}", bytes_, sources=ceil_div(bytes_, 128))
    work.scaled("add", rows=numbers if numbers > 1 else 0, dtype=floats)


RULES: Final[dict[str, CostRule]] = {"ConvInteger": _conv, "MatMulInteger": _matmul}
