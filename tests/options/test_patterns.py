"""Levels of patterns and switches: ours and PopART's names, mistakes, and what they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import popc
import popc_runtime
from popc.options.dialects.popart_patterns import BUILT_IN, ELSEWHERE, PATTERNS
from popc.request import CompileRequest, make_options
from popc.study.effects import explain_options
from popc.transforms import excludable_passes, optional_passes
from popc.transforms.patterns import chosen_rules, is_on
from popc.transforms.rules import RULES
from popc.transforms.rules.fast_math import FAST_MATH
from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from tests.support.compiling import planned_model

# Of the reference manual: what popart.Patterns has a property or a name for.
_POPART: Final = """
    Slice2SliceSubsample SlicePattern ExpandCast ConvFlipWeightsDoubleFlip ConvFlipWeightsGradOp
    Atan2Arg0GradOp Atan2Arg1GradOp DecomposeBinaryConstScalar Log1pGradOp Expm1GradOp
    ZerosLikeOpPattern RandomUniformLikeOpPattern RandomNormalLikeOpPattern FmodArg0GradOp
    UpsampleToResize InitAccumulate PreUniRepl PostNRepl SoftmaxGradDirect NlllWithSoftmaxGradDirect
    OpToIdentity SubtractArg1GradOp MulArgGradOp ReciprocalGradOp DivArg0GradOp DivArg1GradOp
    SinGradOp CosGradOp SqrtGradOp ExpGradOp LogGradOp CoshOp NegativeOneScale PadSum AbsGradOp
    SplitGather ConvDataGrad SumToAdd SplitGradOpToConcat SplitOp PowArg0GradOp PowArg1GradOp
    MatMulOp MatMulLhsGradOp MatMulRhsGradOp LSTMOp AllReduceToIdentity ConvTranspose
    LambSerialisedWeight LoopScanOut PackedDataBlock RemoveUnnecessaryLossGradCast ScanToLoop
    TiedGather TiedGatherAccumulate TransposeToIdentityOrReshapePattern InPlace
    UpdateInplacePrioritiesForIpu SGD0Decompose SGD1Decompose SGD2Decompose AdamDecompose
    AdaptiveDecompose ContiguateIpuCopyIndicesPattern ViewSimplifyPattern
"""


def _model(exclude: tuple[str, ...] = ()) -> onnx.ModelProto:
    """Two rules fire: one on the Transposes, one on the Reshapes."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x) => (float[6] y) '
        "<int64[2] s = {3, 2}, int64[1] t = {6}> { e = Exp (x) "
        "a = Transpose <perm = [1, 0]> (e) [back] b = Transpose <perm = [1, 0]> (a) "
        "c = Reshape (b, s) y = Reshape (c, t) }"
    )
    if exclude:
        node = next(item for item in model.graph.node if item.name == "back")
        node.attribute.append(helper.make_attribute("__exclude_patterns", exclude))
    return model


def _op_types(model: onnx.ModelProto, **options: Any) -> list[str]:
    graph = planned_model(model, options).graph
    return [op.op_type for op in graph.topological() if not op.op_type.startswith("Host")]


def test_all_patterns_of_popart_have_an_answer() -> None:
    tables = [*PATTERNS, *BUILT_IN, *ELSEWHERE]
    assert sorted(tables) == sorted({*_POPART.split(), "Inplace"})
    names = set(optional_passes())
    assert all(set(ours) <= names for ours in PATTERNS.values())


def test_levels() -> None:
    everything = ["Exp", "Transpose", "Transpose", "Reshape", "Reshape"]
    assert _op_types(_model(), patterns="NoPatterns") == everything
    assert _op_types(_model(), patterns="minimal") == everything
    assert _op_types(_model()) == ["Exp", "Reshape"]
    assert _op_types(_model(), patterns="all") == ["Exp", "Reshape"]
    counts = [
        len(chosen_rules(make_options({"patterns": level}), late=True))
        for level in ("no_patterns", "minimal", "default", "all")
    ]
    assert counts == sorted(set(counts))
    of_levels = [rule for rule in RULES if rule.level != FAST_MATH]
    assert (counts[0], counts[-1]) == (0, len(of_levels))
    fast = chosen_rules(make_options({"patterns": "all", "enable_fast_math": True}), late=True)
    assert fast == RULES
    assert chosen_rules(make_options({"patterns": "all"}), late=True) == tuple(of_levels)


@pytest.mark.parametrize("name", ["join_transposes", "TransposeToIdentityOrReshapePattern"])
def test_switches(name: str) -> None:
    left = ["Exp", "Transpose", "Transpose", "Reshape"]
    assert _op_types(_model(), pattern_switches={name: False, "trivial_transposes": False}
                     if name.islower() else {name: False}) == left  # fmt: skip
    on = {"patterns": "no_patterns", "pattern_switches": {name: "on"}}
    if not name.islower():
        assert "Transpose" not in _op_types(_model(), **on)
    assert _op_types(_model(), disabled_passes=["join_transposes", "trivial_transposes"]) == left


def test_switches_on_the_command_line() -> None:
    from popc.options import resolve_options

    options = resolve_options(
        cli=["pattern_switches.PadSum=off", "pattern_switches.split_gathers=on"],
        pass_names=optional_passes(),
    )
    assert dict(options.pattern_switches) == {"add_pads": False, "split_gathers": True}
    assert not is_on("add_pads", "default", options)
    assert is_on("split_gathers", "all", options)


@pytest.mark.parametrize("excluded", ["join_transposes", "simplify"])
def test_a_node_excludes_a_rule(excluded: str) -> None:
    assert _op_types(_model((excluded,))).count("Transpose") == 2
    assert _op_types(_model(("TransposeToIdentityOrReshapePattern",))).count("Transpose") == 2
    assert _op_types(_model(("join_reshapes",))) == ["Exp", "Reshape"]
    rule = {"nodes": "back", "exclude_patterns": ["join_transposes"]}
    assert _op_types(_model(), annotate=[rule]).count("Transpose") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern_switches": {"join_transpose": True}}, "did you mean join_transposes?"),
        ({"pattern_switches": {"LogGradOp": False}}, "not a switch: the rule for the gradient"),
        ({"pattern_switches": {"InPlace": True}}, "the option enable_inplace decides it"),
        ({"pattern_switches": {"PadSum": True, "add_pads": False}}, "'add_pads' both on and off"),
        ({"pattern_switches": {"PadSum": 3}}, "must be true or false"),
        ({"pattern_switches": {"PadSum": True}, "disabled_passes": ["add_pads"]},
         "switches add_pads on, but disabled_passes names it"),
        ({"patterns": "some"}, "no_patterns, minimal, default, all"),
        ({"annotate": [{"nodes": "*", "exclude_patterns": ["MatMulOp"]}]}, "cannot be excluded"),
        ({"annotate": [{"nodes": "*", "exclude_patterns": ["add_pad"]}]}, "did you mean add_pads"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options(dict(options))
    assert message in "\n".join([caught.value.message, *caught.value.details])


def test_an_unknown_name_at_a_node_is_reported() -> None:
    (note,) = popc.compile(_model(("join_transpose",))).notes
    assert "did you mean join_transposes?" in note


def test_effects_are_explained() -> None:
    options = make_options(
        {"pattern_switches": {"join_transposes": False, "PadSum": False, "SinGradOp": True}}
    )
    effects = {
        effect.value: effect
        for effect in explain_options(CompileRequest.of(_model(), options=options))
    }
    assert effects["join_transposes=off"].added["Transpose"] == 2
    assert effects["add_pads=off"].none == "the program is the same without it"
    assert effects["SinGradOp=on"].none


@pytest.mark.parametrize("level", ["no_patterns", "minimal", "all"])
def test_results_are_the_same(level: str, tmp_path: Path) -> None:
    def run(**options: Any) -> Array:
        path = popc.compile(_model(), options=options).save(tmp_path / "m.popx", force=True)
        return popc_runtime.load(path).run({"x": np.ones((2, 3), np.float32)})["y"]

    np.testing.assert_array_equal(run(patterns=level), run())


def test_rules_can_be_excluded() -> None:
    assert {rule.name for rule in RULES} <= set(excludable_passes())
