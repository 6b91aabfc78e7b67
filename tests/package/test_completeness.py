"""Every op is known everywhere it has to be known; a failure names the missing cell."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Final

import onnx
import pytest
from onnx import helper

import popc.autodiff.rules
import popc.cost.rules
import popc.frontend.rules.graphcore
import popc.frontend.rules.microsoft
import popc.frontend.rules.onnx
import popc.ops
import popc.transforms.batch_serialization.rules
import popc_runtime.kernels
import popc_runtime.native.encoders
import tests.native.families
from popc.autodiff.rules import GRADIENTS, NOT_DIFFERENTIABLE
from popc.frontend import LoadedModel, find_unsupported
from popc.frontend.rules import RULES
from popc.frontend.rules.families import FAMILIES as RULE_FAMILIES
from popc.ops import OPS, OpSpec
from popc.ops.families import FAMILIES as OP_FAMILIES
from popc.ops.families import RANDOM, VIEWS
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.core.families import FAMILIES
from popc_runtime.native.encoders.families import FAMILIES as NATIVE_FAMILIES
from tests.autodiff.report import rows, table

_OPSET: Final = 26

# Transfers are bound by the engine itself: it knows the ports.
_BOUND_BY_ENGINE: Final = frozenset({"HostLoad", "HostStore"})
# Lowering makes a copy or a loop state of them, or nothing.
_RESOLVED_BY_LOWERING: Final = frozenset({"Accumulate", "CopyVarUpdate"})
# Instructions that lowering adds; no graph holds them.
_ADDED_BY_LOWERING: Final = frozenset({"Fill", "StackStore"})
_CONTROL: Final = frozenset({"If", "Loop"})

_NOT_IMPORTED: Final = {
    "RegexFullMatch": "takes strings, which have no place in the device's memory",
    "StringConcat": "takes strings",
    "StringNormalizer": "takes strings",
    "StringSplit": "takes strings",
}


def _operators() -> list[str]:
    """The operators of ai.onnx at `_OPSET` that are not deprecated."""
    newest: dict[str, tuple[int, bool]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= _OPSET:
            entry = (schema.since_version, schema.deprecated)
            newest[schema.name] = max(newest.get(schema.name, entry), entry)
    return sorted(name for name, (_, deprecated) in newest.items() if not deprecated)


def _problems_of_op(op_type: str, spec: OpSpec) -> list[str]:
    problems: list[str] = []
    if op_type not in KERNELS.keys() | _BOUND_BY_ENGINE | _RESOLVED_BY_LOWERING:
        problems.append("has no kernel")
    if spec.view is not None and spec.inplace:
        problems.append("is a view and in-place: a view shares memory already")
    if any(index < 0 for index in spec.inplace) or len(set(spec.inplace)) != len(spec.inplace):
        problems.append(f"lists odd in-place operands {spec.inplace}")
    if spec.commutative and not {0, 1} >= set(spec.inplace):
        problems.append(f"is commutative, but in-place in {spec.inplace}")
    if spec.elementwise and spec.random:
        problems.append("is elementwise and random: equal operands must give equal results")
    if spec.side_effect and (spec.inplace or spec.view):
        problems.append("has a side effect and shares memory")
    return problems


def test_ops() -> None:
    found = {op_type: _problems_of_op(op_type, spec) for op_type, spec in OPS.items()}
    assert {op_type: problems for op_type, problems in found.items() if problems} == {}


def test_kernels_have_ops() -> None:
    assert KERNELS.keys() - OPS.keys() == _ADDED_BY_LOWERING


def test_exceptions_are_still_exceptions() -> None:
    assert KERNELS.keys() >= _ADDED_BY_LOWERING
    assert not OPS.keys() & (_ADDED_BY_LOWERING | _CONTROL)
    assert not KERNELS.keys() & (_BOUND_BY_ENGINE | _RESOLVED_BY_LOWERING | _CONTROL)


def test_every_op_has_a_gradient_or_a_reason() -> None:
    everything = rows()
    assert [row.op_type for row in everything if row.gradient == "missing"] == []
    assert len(list(table(everything))) > len(OPS)


def test_gradients_are_of_ops_that_exist() -> None:
    assert GRADIENTS.keys() <= OPS.keys()
    assert NOT_DIFFERENTIABLE.keys() <= OPS.keys()
    assert not GRADIENTS.keys() & NOT_DIFFERENTIABLE.keys()


def _is_imported(op_type: str) -> bool:
    node = helper.make_node(op_type, [], ["y"])
    model = helper.make_model(
        helper.make_graph([node], "g", [], []), opset_imports=[helper.make_opsetid("", _OPSET)]
    )
    return not list(find_unsupported(LoadedModel(model, "", "")))


def test_operators_can_be_imported() -> None:
    assert {op_type for op_type in _operators() if not _is_imported(op_type)} == set(_NOT_IMPORTED)


def test_rules_are_for_operators_that_exist() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    unknown = {name for domain, name in RULES if not domain} - known
    on_trial = {name for _, name in RULE_FAMILIES["onnx.experimental"]}  # which onnxruntime has
    assert unknown == {"SimplifiedLayerNormalization", *on_trial}  # its own, in this domain


def _family_files(package: ModuleType, table: str) -> set[str]:
    """The files of ``package`` that define the table."""
    (folder,) = package.__path__
    return {
        path.stem
        for path in Path(folder).glob("*.py")
        if path.stem != "__init__" and f"\n{table}: Final" in path.read_text(encoding="utf-8")
    }


def test_every_family_is_listed() -> None:
    assert set(OP_FAMILIES) == _family_files(popc.ops, "OPS")


@pytest.mark.parametrize("family", sorted(OP_FAMILIES))
def test_every_op_is_listed(family: str) -> None:
    module = importlib.import_module(f"popc.ops.{family}")
    assert set(OP_FAMILIES[family]) == set(module.OPS)


def test_the_lists_beside_the_ops_agree_with_their_definitions() -> None:
    assert {op_type for op_type, spec in OPS.items() if spec.view is not None} == VIEWS
    assert {op_type for op_type, spec in OPS.items() if spec.random} == RANDOM


@pytest.mark.parametrize("domain", ["onnx", "graphcore", "microsoft", "ml"])
def test_every_file_of_import_rules_is_listed(domain: str) -> None:
    package = importlib.import_module(f"popc.frontend.rules.{domain}")
    listed = {f"{domain}.{file}" for file in _family_files(package, "RULES")}
    assert {family for family in RULE_FAMILIES if family.startswith(f"{domain}.")} == listed


@pytest.mark.parametrize("family", sorted(RULE_FAMILIES))
def test_every_import_rule_is_listed(family: str) -> None:
    module = importlib.import_module(f"popc.frontend.rules.{family}")
    assert set(RULE_FAMILIES[family]) == set(module.RULES)


def test_every_kernel_family_is_listed() -> None:
    assert set(FAMILIES) == _family_files(popc_runtime.kernels, "KERNELS")
    assert set(NATIVE_FAMILIES) == _family_files(popc_runtime.native.encoders, "ENCODERS")


# Rooms with a file per family, and the files there that are of no family: what they hold becomes
# ops of several, or none.
_ROOMS: dict[ModuleType, str] = {
    popc.autodiff.rules: "",
    popc.cost.rules: "common",
    popc.transforms.batch_serialization.rules: "",
    popc.frontend.rules.onnx: "einsum experimental generate gradient loop scan sequence training",
    popc.frontend.rules.graphcore: "call operators",
    popc.frontend.rules.microsoft: (
        "buffers cache_forms crop group_query nchwc operators recurrent rotary search "
        "search_decoders search_graph search_steps streams tokens"
    ),
    popc_runtime.kernels: "",
    popc_runtime.native.encoders: "families",
}


@pytest.mark.parametrize("room", _ROOMS, ids=lambda room: room.__name__)
def test_files_have_the_names_of_families(room: ModuleType) -> None:
    """A family of ops has one name from the model to the native kernel, perhaps with more to it."""
    (folder,) = room.__path__
    stems = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    assert _strange(stems) == set(_ROOMS[room].split())


def test_tests_of_native_kernels_have_the_names_of_families() -> None:
    """What is of several families, or of none, stands in the folder around."""
    folder = Path(tests.native.families.__path__[0])
    assert _strange({path.stem.removeprefix("test_") for path in folder.glob("test_*.py")}) == set()


def _strange(stems: set[str]) -> set[str]:
    """Names of files that are of no family."""
    families = {path.stem for path in Path(popc.ops.__path__[0]).glob("*.py")} - {"families"}
    return {stem for stem in stems if not any(_is_of(stem, family) for family in families)}


def _is_of(stem: str, family: str) -> bool:
    """True if a file is one of the family; gradients may stand with what they are gradients of."""
    names = (family, family.removesuffix("_grad"))
    return any(stem == name or stem.startswith(f"{name}_") for name in names)


# Tables with an entry for each op or instruction.
_TABLES: dict[ModuleType, str] = {
    popc.autodiff.rules: "GRADIENTS",
    popc.cost.rules: "RULES",
    popc.transforms.batch_serialization.rules: "RULES",
    popc_runtime.kernels: "KERNELS",
    popc_runtime.native.encoders: "ENCODERS",
}


@pytest.mark.parametrize("room", _TABLES, ids=lambda room: room.__name__)
def test_what_is_said_of_an_op_stands_in_a_file_of_its_family(room: ModuleType) -> None:
    families = {
        op_type: family
        for family in _family_files(popc.ops, "OPS")
        for op_type in importlib.import_module(f"popc.ops.{family}").OPS
    }
    misplaced = {
        f"{op_type}: {stem}, not {families[op_type]}"
        for stem in _family_files(room, _TABLES[room])
        for op_type in getattr(importlib.import_module(f"{room.__name__}.{stem}"), _TABLES[room])
        if op_type in families and not _is_of(stem, families[op_type])
    }
    assert misplaced == set()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_listed_kernels_are_those_of_the_family(family: str) -> None:
    module = importlib.import_module(f"popc_runtime.kernels.{family}")
    assert set(FAMILIES[family]) == set(module.KERNELS)


@pytest.mark.parametrize("family", sorted(NATIVE_FAMILIES))
def test_the_listed_encoders_are_those_of_the_family(family: str) -> None:
    module = importlib.import_module(f"popc_runtime.native.encoders.{family}")
    assert set(NATIVE_FAMILIES[family]) == set(module.ENCODERS)
