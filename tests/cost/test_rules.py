"""Every op has a cost, and costs grow with the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import popc.cost.rules
from popc.cost import CostReport, CostSettings, estimate_costs
from popc.cost.formulas import elementwise
from popc.cost.rules import RULES
from popc.ir import Graph, OpSettings
from popc.memory import plan_memory
from popc.ops import OPS
from popc.ops.build import build
from popc.ops.families import FAMILIES
from popc.schedule import build_schedule
from popc.target import find_target
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc_runtime.format import DType
from popc_runtime.kernels.core.stored import as_stored
from tests.autodiff import test_gradients
from tests.support import gradients
from tests.support.gradients import Case
from tests.support.oracles import import_graph, one_node_model
from tests.support.small_graphs import SmallGraph

_TARGET = find_target("ipu2")
_CASES = [case for family in vars(test_gradients)["_FAMILIES"] for case in family.CASES]


def _costs(model: onnx.ModelProto) -> CostReport:
    graph = import_graph(model)
    schedule = build_schedule(graph)
    return estimate_costs(graph, schedule, plan_memory(graph, schedule), _TARGET)


def _of(op_type: str, *shapes: tuple[int, ...], **attributes: object) -> CostReport:
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    return _costs(one_node_model(op_type, inputs, attributes, opset=22))


def test_every_op_has_a_rule() -> None:
    missing = OPS.keys() - RULES.keys()
    assert not missing, f"no cost rule for {sorted(missing)}"
    assert RULES.keys() <= OPS.keys()


def test_families_are_those_of_the_ops() -> None:
    families = vars(popc.cost.rules)["_FAMILIES"]
    assert [family.__name__.rsplit(".", 1)[1] for family in families] == list(FAMILIES)


def _check(graph: Graph) -> None:
    schedule = build_schedule(graph)
    report = estimate_costs(graph, schedule, plan_memory(graph, schedule), _TARGET)
    cycles = report.cycles
    assert min(cycles.compute, cycles.exchange, cycles.sync, cycles.launch, cycles.host) >= 0
    assert cycles.total < 1 << 40
    assert report.fits


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_rules_work_on_what_ops_take(case: Case) -> None:
    _check(case.graph(np.float32))


@pytest.mark.parametrize("case", [case for case in _CASES if case.differentiated], ids=str)
def test_rules_work_on_gradients(case: Case) -> None:
    graph, _, _ = vars(gradients)["_differentiated"](case, np.float32)
    _check(graph)


@pytest.mark.parametrize(
    ("op_type", "small", "large", "attributes"),
    [
        ("Relu", [(4, 1000)], [(4, 100_000)], {}),
        ("Add", [(4, 1000), (4, 1000)], [(4, 100_000), (4, 100_000)], {}),
        ("Softmax", [(64, 100)], [(6400, 1000)], {}),
        ("MatMul", [(8, 64), (64, 64)], [(800, 640), (640, 640)], {}),
        ("Conv", [(1, 8, 9, 9), (8, 8, 3, 3)], [(8, 64, 56, 56), (64, 64, 3, 3)], {}),
        ("MaxPool", [(1, 8, 9, 9)], [(8, 64, 99, 99)], {"kernel_shape": [3, 3]}),
        ("ReduceSum", [(10, 100)], [(1000, 1000)], {}),
        ("LayerNormalization", [(8, 64), (64,)], [(800, 640), (640,)], {}),
    ],
)
def test_more_work_costs_more(
    op_type: str,
    small: list[tuple[int, ...]],
    large: list[tuple[int, ...]],
    attributes: dict[str, object],
) -> None:
    reports = [_of(op_type, *shapes, **attributes) for shapes in (small, large)]
    assert reports[0].cycles.total < reports[1].cycles.total


@pytest.mark.parametrize(
    ("op_type", "shapes"),
    [
        ("Softmax", [(0, 4)]),
        ("LogSoftmax", [(3, 0)]),
        ("ReduceMean", [(3, 0)]),
        ("LayerNormalization", [(0, 4), (4,), (4,)]),
        ("InstanceNormalization", [(0, 4, 3), (4,), (4,)]),
        ("GlobalAveragePool", [(0, 4, 3, 3)]),
        ("MatMul", [(3, 0), (0, 5)]),
        ("Conv", [(0, 4, 3, 3), (5, 4, 3, 3)]),
    ],
)
def test_empty_tensors_have_a_cost(op_type: str, shapes: list[tuple[int, ...]]) -> None:
    assert _of(op_type, *shapes).cycles.total >= 0


def test_transposed_convolutions_do_not_compute_what_is_empty() -> None:
    weights = (64, 64, 1, 1)
    dense = _of("ConvTranspose", (4, 64, 56, 56), weights)
    sparse = _of("ConvTranspose", (4, 64, 56, 56), weights, strides=[2, 2])
    assert sparse.cycles.compute < 1.2 * dense.cycles.compute


def test_attention_is_the_sum_of_its_parts() -> None:
    shape = (1, 12, 128, 64)
    report = _of("Attention", shape, shape, shape)
    (op,) = [op for op in report.ops if op.op_type == "Attention"]
    names = [phase.name for phase in op.phases]
    assert names.count("convolve") == 2
    assert "exp" in names
    assert names.index("exp") < len(names) - 1
    assert len(op.plans) == 2


def test_foundof_softmax_take_whole_rows_as_softmax_does() -> None:
    """A product leaves rows on several tiles, forward and backward."""
    small, half = SmallGraph(), DType.FLOAT16
    x, weights = small.input(96, 197, 64, dtype=half), small.input(96, 64, 197, dtype=half)
    y = small("Softmax", small("MatMul", x, weights), axis=-1)
    gradient = small("MatMul", small.input(96, 197, 64, dtype=half), weights)
    small.output(small("SoftmaxGrad", gradient, y, axis=-1))
    schedule = build_schedule(small.graph)
    report = estimate_costs(small.graph, schedule, plan_memory(small.graph, schedule), _TARGET)
    copies = {
        op.op_type: [phase for phase in op.phases if phase.name == "rows"] for op in report.ops
    }
    assert copies["SoftmaxGrad"] == copies["Softmax"]
    assert len(copies["Softmax"]) == 2  # an exchange, and copies on every tile


def test_foundof_attention_take_whole_rows_twice() -> None:
    """Scores, which are computed again, and their gradient."""
    small, half = SmallGraph(), DType.FLOAT16
    inputs = [small.input(8, 12, 197, 64, dtype=half) for _ in range(3)]
    y = small("Attention", *inputs, scale=0.125)
    operands = [*inputs, None, None, y, y]
    found = build(small.graph, "AttentionGrad", operands, {"scale": 0.125}).outputs
    small.output(found[0])
    schedule = build_schedule(small.graph)
    report = estimate_costs(small.graph, schedule, plan_memory(small.graph, schedule), _TARGET)
    copies = [[phase.name for phase in op.phases].count("rows") for op in report.ops]
    assert copies == [2, 4]


def test_an_epilogue_costs_what_its_ops_do() -> None:
    shapes = (1, 16, 28, 28), (16, 16, 3, 3)
    plain = _of("Conv", *shapes, pads=[1, 1, 1, 1])
    bias = _of("Conv", *shapes, (16,), pads=[1, 1, 1, 1])
    names = [phase.name for phase in bias.ops[0].phases]
    assert names[-1] == "bias"
    extra = bias.cycles.total - plain.cycles.total
    assert 0 < extra < plain.cycles.total


@pytest.mark.parametrize("op_type", ["Gelu", "GeluGrad", "MatMul"])
def test_each_form_of_gelu_has_its_non_linearity(op_type: str) -> None:
    """popnn's form by tanh takes 5 cycles an element of half precision, the other one 15."""
    found: list[int] = []
    for form in ("tanh", "none"):
        small = SmallGraph()
        half = DType.FLOAT16
        x = small.input(1472, 64, dtype=half)
        if op_type == "MatMul":
            weights = small.input(64, 64, dtype=half)
            epilogue = {"activation": "Gelu", "activation_approximate": form}
            y = small("MatMul", x, weights, **epilogue)
        else:
            others = [] if op_type == "Gelu" else [small.input(1472, 64, dtype=half)]
            y = small(op_type, *others, x, approximate=form)
        graph = small.output(y)
        schedule = build_schedule(graph)
        report = estimate_costs(graph, schedule, plan_memory(graph, schedule), _TARGET)
        found.append(report.cycles.compute)
    names = ("gelu", "gelu_erf") if op_type != "GeluGrad" else ("gelu_grad", "gelu_erf_grad")
    expected = [elementwise.non_linear(name, "half", 64) for name in names]
    assert found[1] - found[0] == expected[1] - expected[0]


def test_half_precision_is_faster() -> None:
    inputs = [np.zeros((512, 768), np.float32), np.zeros((768, 768), np.float32)]
    single = _costs(one_node_model("MatMul", inputs, {}, opset=22))
    half = _costs(
        one_node_model("MatMul", [operand.astype(np.float16) for operand in inputs], {}, opset=22)
    )
    assert half.cycles.compute < 0.7 * single.cycles.compute


@pytest.mark.parametrize(
    ("exponent", "names"),
    [
        (2.0, ["square"]),
        (3.0, ["square", "add"]),
        (5.0, ["square", "square", "add"]),
        (-2.0, ["square", "inverse"]),
        (0.5, ["sqrt"]),
        (2.5, ["power"]),
        (17.0, ["power"]),
        (0.0, ["power"]),
    ],
)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32, DType.BFLOAT16])
def test_small_powers_are_products(exponent: float, names: list[str], dtype: DType) -> None:
    small = SmallGraph()
    x = small.input(64, 64, dtype=dtype)
    small.output(small("Pow", x, small.constant(as_stored(exponent, dtype), dtype)))
    schedule = build_schedule(small.graph)
    report = estimate_costs(small.graph, schedule, plan_memory(small.graph, schedule), _TARGET)
    assert [phase.name for phase in report.ops[0].phases] == names


def test_settings_by_pattern() -> None:
    options = CostSettings(0.6, (("layer*.up", 0.2), ("*", 0.4)))
    assert options.proportion_of(OpSettings("layer3.up"), "MatMul", 0) == 0.2
    assert options.proportion_of(OpSettings("other"), "MatMul", 0) == 0.4
    assert replace(options, proportions=()).proportion_of(OpSettings("other"), "MatMul", 0) == 0.6
    annotated = OpSettings("other", available_memory=0.3)
    assert options.proportion_of(annotated, "MatMul", 0) == 0.4
    wide = CostSettings(0.6, (("a", 0.1),), (("MatMul", 0.2),), (0.3, 0.4))
    assert wide.proportion_of(OpSettings("a"), "MatMul", 1) == 0.1
    assert wide.proportion_of(OpSettings("b"), "MatMul", 1) == 0.2
    assert wide.proportion_of(annotated, "MatMul", 1) == 0.3
    assert [wide.proportion_of(OpSettings("b"), "Conv", chip) for chip in (0, 1, 2)] == [
        0.3,
        0.4,
        0.6,
    ]


def _bytes_of_products(small: SmallGraph) -> None:
    """Everything that may follow the sums of an integer product."""
    x, r = small.input(256, 512, dtype=DType.UINT8), small.input(256, 384)
    weights = small.constant(np.ones((512, 384)), DType.INT8)
    y = small("MatMulInteger", x, weights, dtype="float32")
    y = small("Mul", y, small.constant(np.full(384, 0.5)))
    y = small("FakeQuantize", y, scale=0.05, low=-128.0, high=127.0)
    y = small("Add", small("Add", y, small.constant(np.ones(384))), r)
    y = small("Relu", y)
    parameters = small.constant(0.1), small.constant(3, DType.UINT8)
    small.output(small("QuantizeLinear", y, *parameters, axis=0, block_size=0, dtype="uint8"))


def test_what_follows_integer_sums_costs_what_its_ops_do() -> None:
    compute = []
    for passes in ([], [FuseByteEpilogues(), DeadCode()]):
        small = SmallGraph()
        _bytes_of_products(small)
        run_to_fixed_point(passes, small.graph, check=True)
        schedule = build_schedule(small.graph)
        report = estimate_costs(small.graph, schedule, plan_memory(small.graph, schedule), _TARGET)
        compute.append(report.cycles.compute)
        assert len(report.ops) == (1 if passes else 7)
    assert compute[1] == pytest.approx(compute[0], rel=0.1)
