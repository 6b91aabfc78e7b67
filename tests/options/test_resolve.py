from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from popc.options import (
    SCHEMA,
    Anchor,
    FrozenTable,
    Options,
    Origin,
    ReturnType,
    WeightStorage,
    describe_options,
    resolve_options,
)
from popc.options.dialects import popart
from popc_runtime.errors import OptionError, ResourceError
from popc_runtime.format import OptionSetting

_PASSES = ("common_subexpressions", "constant_folding")


def _write(folder: Path, text: str, name: str = "options.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _problems(**sources: Any) -> tuple[str, ...]:
    with pytest.raises(OptionError) as caught:
        resolve_options(pass_names=_PASSES, **sources)
    assert "popc options" in caught.value.hint
    return caught.value.details


# -- the schema ------------------------------------------------------------------------------------


def test_every_attribute_is_described() -> None:
    names = {field.name for field in fields(Options)} - {"origins", "foreign"}
    assert [spec.name for spec in SCHEMA] == sorted(names)
    for spec in SCHEMA:
        assert spec.meaning.endswith(".")
        assert getattr(Options(), spec.name) == spec.default


def test_descriptions_are_plain_data() -> None:
    rows = {row["name"]: row for row in describe_options(_PASSES)}
    json.dumps(list(rows.values()))
    assert rows["disabled_passes"]["choices"] == [*_PASSES]
    assert rows["batches_per_step"]["range"][0] == 1
    assert rows["kahn_tie_breaker"]["popart"] == "kahnTieBreaker"
    assert rows["weights"]["variable"] == "POPC_WEIGHTS"
    assert rows["default_anchor"]["default"] == "all"
    assert all(len(row["summary"]) < 100 for row in rows.values())


def test_options_are_values() -> None:
    options = resolve_options(cli=["anchors.y=final", "batches_per_step=2"])
    assert options == resolve_options(cli=["batches_per_step=2", "anchors.y=final"])
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))
    assert len({options, Options(), resolve_options()}) == 2
    with pytest.raises(FrozenInstanceError):
        options.weights = WeightStorage.MMAP  # type: ignore[misc]


@pytest.mark.parametrize(
    "values",
    [
        {"kahn_tie_breaker": "fifo"},
        {"tile_sets": FrozenTable({"x": "io"})},
        {"floating_point_exceptions": ("div0",)},
        {"weight_tensor_location": FrozenTable({"storage": "off_chip"})},
        {"tensor_location_override": FrozenTable({"w": FrozenTable({"storage": "off_chip"})})},
    ],
)
def test_text_is_no_value_of_a_choice(values: dict[str, Any]) -> None:
    """It equals the member of the enum, but whoever asks for the member would not find it."""
    with pytest.raises(OptionError, match="has not been parsed") as caught:
        Options(**values)
    assert caught.value.subject in values


# -- sources ---------------------------------------------------------------------------------------


def test_later_sources_win(tmp_path: Path) -> None:
    file = _write(tmp_path, 'weights = "mmap"\ncompression = "max"\nfold_limit_bytes = 1\n')
    env = {"POPC_COMPRESSION": "fast", "POPC_FOLD_LIMIT_BYTES": "2", "POPC_LOG": "debug"}
    values = {"fold_limit_bytes": 3, "batches_per_step": 3}
    options = resolve_options(cli=["batches_per_step=4"], env=env, file=file, values=values)
    found = {spec.name: (getattr(options, spec.name), options.origin(spec.name)) for spec in SCHEMA}
    assert found["kahn_tie_breaker"] == ("greedy", Origin.DEFAULT)
    assert found["weights"] == ("mmap", Origin.FILE)
    assert found["compression"] == ("fast", Origin.ENV)
    assert found["fold_limit_bytes"] == (3, Origin.API)
    assert found["batches_per_step"] == (4, Origin.CLI)


def test_toml_and_json_mean_the_same(tmp_path: Path) -> None:
    toml = """
        batches_per_step = 4
        verify_ir = true
        disabled_passes = ["constant_folding"]
        default_anchor = "sum"
        [anchors]
        y = "final"
        "z/1" = { type = "every_n", n = 2 }
    """
    table = {
        "batches_per_step": 4,
        "verify_ir": True,
        "disabled_passes": ["constant_folding"],
        "default_anchor": "sum",
        "anchors": {"y": "final", "z/1": {"type": "every_n", "n": 2}},
    }
    files = [_write(tmp_path, toml), _write(tmp_path, json.dumps(table), "options.json")]
    first, second = (resolve_options(file=file, pass_names=_PASSES) for file in files)
    assert first == second
    assert first.anchors == {"y": Anchor(ReturnType.FINAL), "z/1": Anchor(ReturnType.EVERY_N, 2)}
    assert first.anchor("y") == Anchor(ReturnType.FINAL)
    assert first.anchor("other") == Anchor(ReturnType.SUM)
    assert first.disabled_passes == ("constant_folding",)


def test_text_from_environment_and_command_line() -> None:
    env = {
        "POPC_ANCHORS": "y=final, z=every_n:2",
        "POPC_VERIFY_IR": "Yes",
        "POPC_DISABLED_PASSES": "constant_folding, common_subexpressions,",
        "POPC_BATCHES_PER_STEP": "+4",
        "POPC_DEFAULT_ANCHOR": "every_n:4",
    }
    options = resolve_options(
        cli=["enable-inplace=off", "kahnTieBreaker=FIFO"], env=env, pass_names=_PASSES
    )
    assert options.anchors == {"y": Anchor(ReturnType.FINAL), "z": Anchor(ReturnType.EVERY_N, 2)}
    assert options.verify_ir
    assert not options.enable_inplace
    assert options.kahn_tie_breaker == "fifo"
    assert options.disabled_passes == _PASSES
    assert options.batches_per_step == 4
    assert options.default_anchor == Anchor(ReturnType.EVERY_N, 4)


def test_entries_of_tables_are_settings_of_their_own(tmp_path: Path) -> None:
    file = _write(tmp_path, 'anchors = { x = "final", y = "final" }')
    cli = ["anchors.y=sum", "anchors.a=b=all"]
    options = resolve_options(cli=cli, file=file)
    anchors = {name: str(anchor) for name, anchor in options.anchors.items()}
    assert anchors == {"a=b": "all", "x": "final", "y": "sum"}
    assert options.origin("anchors") is Origin.CLI


def test_an_empty_list_of_passes() -> None:
    options = resolve_options(
        env={"POPC_DISABLED_PASSES": "constant_folding"},
        cli=["disabled_passes="],
        pass_names=_PASSES,
    )
    assert options.disabled_passes == ()


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("weights = ", "o.toml", "o.toml cannot be parsed: "),
        ('weights = "mmap"\nweights = "mmap"', "o.toml", "o.toml cannot be parsed: "),
        ("{", "o.json", "o.json cannot be parsed: "),
        ('{"a": 1, "a": 2}', "o.json", "o.json cannot be parsed: 'a' is given twice"),
        ("[]", "o.json", "o.json must hold a table of options"),
    ],
)
def test_files_that_cannot_be_parsed(tmp_path: Path, text: str, name: str, problem: str) -> None:
    (found,) = _problems(file=_write(tmp_path, text, name))
    assert found.startswith(problem)
    assert str(tmp_path) not in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"missing\.toml: No such file or directory$"):
        resolve_options(file=tmp_path / "missing.toml")


def test_what_is_no_text_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'weights = "\xff"')
    problems = _problems(file=tmp_path / "latin.toml")
    assert list(problems) == ["latin.toml cannot be parsed: it is not UTF-8 text"]


# -- mistakes --------------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    problems = _problems(
        file=_write(tmp_path, 'weigths = "mmap"\nverify_ir = 1\n'),
        env={"POPC_WEIGHT": "mmap", "POPC_COMPRESSION": "best"},
        values={"batches_per_step": 0, "enableEngineCaching": True},
        cli=["weights", "fold_limit_bytes=64k", "anchors.y=every_n:2"],
    )
    assert problems == (
        "there is no option 'weigths': did you mean weights? (in options.toml)",
        "verify_ir is 1, but must be true or false (in options.toml)",
        "POPC_WEIGHT is set, but is not an option: did you mean POPC_WEIGHTS?",
        "compression is 'best', but must be one of fast, default, max (in POPC_COMPRESSION)",
        "batches_per_step is 0, but must be at least 1 (in options)",
        (
            "enableEngineCaching is an option of PopART that this version of popc does not "
            "support: the archive takes the place of PopART's cache (in options)"
        ),
        "--set weights: expected KEY=VALUE",
        "fold_limit_bytes is '64k', but must be a whole number (in --set)",
        "anchors of 'y': n is 2, but must be from 1 to batches_per_step (1)",
    )


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("batches_per_step=1.5", "is '1.5', but must be a whole number"),
        ("batches_per_step=-1", "is -1, but must be at least 1"),
        ("batches_per_step=999999999999999999", "but must be at most"),
        ("batches_per_step=9999999999999999999", "but must be a whole number"),
        ("batches_per_step=+-1", "is '+-1', but must be a whole number"),
        ("enable_inplace=maybe", "is 'maybe', but must be true or false"),
        ("disabled_passes=constant_fold", "did you mean constant_folding?"),
        ("disabled_passes=x", "does not exist: choose from common_subexpressions, constant_fold"),
        ("default_anchor=some", "must be one of all, final, sum, every_n"),
        ("anchors=final", "holds 'final', but must be like y=final,z=every_n:2"),
        ("anchors.y=last", "of 'y' is 'last', but must be one of"),
        ("", "expected KEY=VALUE"),
        ("=1", "there is no option ''"),
        ("zzz=1", "there is no option 'zzz' (in --set)"),
    ],
)
def test_mistakes_on_the_command_line(item: str, problem: str) -> None:
    (found,) = _problems(cli=[item])
    assert problem in found


@pytest.mark.parametrize(
    "values",
    [
        {"batches_per_step": True},
        {"batches_per_step": 2.0},
        {"batches_per_step": None},
        {"weights": 1},
        {"verify_ir": None},
        {"disabled_passes": [1]},
        {"disabled_passes": None},
        {"anchors": ["y"]},
        {"anchors": {"y": None}},
        {"default_anchor": 1},
    ],
)
def test_values_of_the_wrong_type(values: dict[str, object]) -> None:
    (found,) = _problems(values=values)
    assert found.startswith(f"{next(iter(values))} ")
    assert " must be " in found


@pytest.mark.parametrize(
    ("cli", "problem"),
    [
        (["weights=mmap", "weights=mmap"], "weights is given twice (in --set)"),
        (
            ["kahnTieBreaker=fifo", "kahn_tie_breaker=fifo"],
            "kahn_tie_breaker is given twice, the other time as kahnTieBreaker (in --set)",
        ),
        (["anchors.y=all", "anchors.y=sum"], "--set anchors.y=sum: anchors.y is given twice"),
        (["anchors=y=all", "anchors.y=sum"], "anchors is given twice (in --set)"),
    ],
)
def test_one_source_sets_an_option_once(cli: list[str], problem: str) -> None:
    assert _problems(cli=cli) == (problem,)


def test_default_anchors_suit_the_step_as_well() -> None:
    cli = ["batches_per_step=4", "default_anchor=every_n:3"]
    assert _problems(cli=cli) == (
        "default_anchor: n is 3, which does not divide batches_per_step (4)",
    )


# -- dialects --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "enableEngineCaching",
        "ENABLE-ENGINE-CACHING",
        "experimentalSettings.customTransformApplierSettings",
    ],
)
def test_options_of_popart_are_refused_by_name(key: str) -> None:
    (found,) = _problems(values={key: True})
    assert found.startswith(f"{key} is an option of PopART that this version of popc does not")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enableEngineCaching", False),
        ("strictOpVersions", "true"),
        ("engineOptions", {}),
        ("finalDotOp", "10000"),
        ("enable_stable_norm", True),
        ("explicitRecomputation", True),
        ("cachePath", "session_cache"),
    ],
)
def test_options_of_popart_that_ask_for_nothing_are_taken(key: str, value: object) -> None:
    assert not resolve_options(values={key: value}).origins


def test_what_popc_supports_is_not_refused() -> None:
    for spec in SCHEMA:
        assert not popart.why_unsupported(spec.name)
        assert not spec.popart or not popart.why_unsupported(spec.popart)
    assert popart.why_unsupported("weights") == ""


# -- the manifest ----------------------------------------------------------------------------------


def test_the_manifest_lists_every_option_with_its_origin(tmp_path: Path) -> None:
    file = _write(tmp_path, 'batches_per_step = 4\n[anchors]\nz = "final"\ny = "every_n:2"\n')
    settings = resolve_options(cli=["weights=mmap"], file=file).to_manifest()
    assert [setting.name for setting in settings] == [spec.name for spec in SCHEMA if spec.recorded]
    anchors = (("y", "every_n:2"), ("z", "final"))
    assert OptionSetting("anchors", anchors, Origin.FILE) in settings
    assert OptionSetting("default_anchor", "all", Origin.DEFAULT) in settings
    assert OptionSetting("weights", "mmap", Origin.CLI) in settings
    assert str(tmp_path) not in repr(settings)
