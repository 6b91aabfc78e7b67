"""The JSON documents of all verbs, against the schemas that are published for them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

from popc.cli.root import run
from popc.cli.schemas import DOCUMENTS, document_schema, options_file_schema
from popc.cli.verbs import VERBS
from popc.cli.verbs.cache import command as cache
from popc.cli.verbs.feed import command as feed
from popc.options import SCHEMA
from tests.support.models import affine
from tools.schemas_page import schema_files

_PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"

_LINES = [
    "bench m.popx --runs 1 --where",
    "cache clear --dry-run",
    "cache list",
    "cache prune --dry-run",
    "cache status",
    "cache why m.onnx",
    "check m.onnx",
    "check m.onnx --set verify_ir=true",
    "check m.popx",
    "check n.onnx --dim N=1,2..4 --split N",
    "compile m.onnx --dump-options",
    "compile m.onnx --stop-after import",
    "compile m.onnx -o n.popx",
    "completion bash",
    "diff m.popx m.popx",
    "diff m.popx p.popx",
    "doctor",
    "estimate m.onnx",
    "estimate m.onnx --all",
    "explain m.onnx",
    "explain m.onnx --set num_ipus=2 --set tiles_per_ipu=1 --jobs 1",
    "feed bench x.npy --epochs 1 --elements 2",
    "feed write x.npy -o y.bin",
    "inspect m.onnx",
    "inspect m.popx",
    "inspect t.popx",
    "options",
    "report m.popx",
    "report m.popx --all --json r.json --force",
    "run m.popx -i x=random:0",
    "run m.popx -i x=random:0 --values",
    "targets",
    "targets --show ipu2",
    "tune m.onnx -o o.toml --jobs 1",
    "verify m.onnx",
    "--version",
]
_ERRORS = ["run m.popx", "run nowhere.popx", "cache clear nothing", "compile m.popx"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("schemas")
    onnx.save(affine(), made / "m.onnx")
    np.save(made / "x.npy", np.zeros((2, 3), np.float32))
    lines = [str(made / "m.onnx"), "-o", str(made / "m.popx"), "--set", "cost_report=true"]
    assert run(["-q", "compile", *lines]) == 0
    lines = [str(made / "m.onnx"), "-o", str(made / "p.popx"), "--set", "enable_inplace=false"]
    assert run(["-q", "compile", *lines, "--set", "cost_report=true"]) == 0
    onnx.save(affine("N"), made / "n.onnx")
    (made / "t.toml").write_text(
        '[loss]\ntype = "l1"\ninput = "y"\n[optimizer]\ntype = "adam"\n', encoding="utf-8"
    )
    lines = [str(made / "m.onnx"), "-o", str(made / "t.popx"), "--train", str(made / "t.toml")]
    assert run(["-q", "compile", *lines]) == 0
    return made


_ALL = ("schema", "status", "exit_code", "warnings")


def _strict(name: str) -> Any:
    """The schema of a document without room for what it does not say."""
    return _closed(dict(DOCUMENTS[name]))


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        if "properties" in schema:
            closed["additionalProperties"] = False
        return closed
    return [_closed(item) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("line", [*_LINES, *_ERRORS])
def test_documents_are_what_their_schemas_say(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    code = run(["--format", "json", *line.split()])
    document: Any = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    name = document["schema"].removeprefix("popc.").removesuffix("/1")
    jsonschema.validate(document, document_schema(name))
    if "error" not in document:
        jsonschema.validate({k: v for k, v in document.items() if k not in _ALL}, _strict(name))
    assert document["exit_code"] == code
    assert ("error" in document) == (line in _ERRORS)
    for key in document:
        assert key.isidentifier()
        assert key == key.lower()


def test_there_is_a_schema_for_everything() -> None:
    expected = {*VERBS, "version"} - {"cache", "feed"}
    expected |= {f"cache-{name}" for name in cache.commands}
    expected |= {f"feed-{name}" for name in feed.commands}
    assert DOCUMENTS.keys() == expected
    for name in DOCUMENTS:
        jsonschema.Draft202012Validator.check_schema(document_schema(name))


def test_the_published_schemas_are_those_of_the_code() -> None:
    """`make docs` writes them."""
    published = {path.name: path.read_text(encoding="utf-8") for path in _PUBLISHED.iterdir()}
    assert published == schema_files()


def test_options_files_have_a_schema() -> None:
    schema = options_file_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"].keys() == {spec.name for spec in SCHEMA}
    good = tomllib.loads('batches_per_step = 2\nweights = "mmap"\n[anchors]\ny = "final"')
    jsonschema.validate(good, schema)
    for wrong in ({"batches_per_step": 0}, {"verify_ir": "no"}, {"weights": "elsewhere"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_schemas_leave_nothing_open() -> None:
    """Each object says its fields, or what its values are."""

    def check(schema: Any, where: str) -> None:
        if isinstance(schema, list):
            for item in schema:
                check(item, where)
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "object":
            assert schema.keys() & {"properties", "additionalProperties"}, where
        for key, value in schema.items():
            check(value, f"{where}.{key}")

    for name, schema in DOCUMENTS.items():
        check(dict(schema), name)
