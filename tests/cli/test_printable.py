"""Names that nobody should give to anything, and what is printed of them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import popc
from popc.cli.root import run
from popc.printable import format_table, printable, printable_data
from popc.reporting import profile_of, render_page

_RED = "\x1b[31mred"
_TURNED = "\u202eright to left"
_LINES = "two\nlines"
_LONG = "a" * 300


def test_printable() -> None:
    assert printable("d\u00e9j\u00e0 \u65e5\u672c <b>") == "d\u00e9j\u00e0 \u65e5\u672c <b>"
    assert printable(_RED + _TURNED) == "\\x1b[31mred\\u202eright to left"
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"
    assert printable_data({_LINES: [_RED, 1, None]}) == {"two\\nlines": ["\\x1b[31mred", 1, None]}


def test_tables() -> None:
    rows = [["name", "n"], [_LINES, "1"], ["\u65e5\u672c", "22"], [_LONG, "3"]]
    assert format_table(rows, right=(1,)).splitlines() == [
        "name         n",
        "two\\nlines   1",
        "\u65e5\u672c        22",
        f"{_LONG}   3",
    ]
    assert format_table([]) == ""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose tensors and nodes have such names."""
    nodes = [
        helper.make_node("Exp", [_RED], [_LINES], name=_LONG),
        helper.make_node("Softmax", [_LINES], [_TURNED], name=_RED),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in (_RED, _TURNED)
    ]
    graph = helper.make_graph(nodes, _RED, values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    "verb",
    [
        ["compile", "--stop-after", "transform"],
        ["compile", "--stop-after", "lower"],
        ["estimate"],
        ["explain", "--budget", "2"],
        ["report", "--all"],
        ["inspect"],
        ["inspect", "--section", "nodes"],
        ["verify", "--all"],
    ],
)
def test_no_name_reaches_the_terminal(
    verb: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--no-progress", verb[0], str(model), *verb[1:]]) == 0
    captured = capsys.readouterr()
    assert any(word in captured.out for word in ("\\x1b[31m", "\\u202e"))
    assert not {"\x1b", "\u202e"} & set(captured.out + captured.err)
    assert not any(line.startswith("lines") for line in captured.out.splitlines())


def test_no_name_reaches_the_terminal_by_an_error(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", str(model), "--shape", f"{_RED}x=1,2"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_json_holds_names_as_they_are(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--format", "json", "estimate", "--all", str(model)]) == 0
    assert _RED in {op["name"] for op in json.loads(capsys.readouterr().out)["ops"]}


def test_version_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"]
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("popc, version")


def test_names_on_the_page(model: Path) -> None:
    pytest.importorskip("plotly")
    page = render_page(profile_of(popc.compile(model, options={"cost_report": True}), _RED))
    assert not {"\x1b", "\u202e"} & set(page.split("<script", 3)[0])
    data = json.loads(page.split('id="data"')[1].split(">", 1)[1].split("</script>", 1)[0])
    assert printable_data(data) == data
    assert printable(_TURNED) in data["ops"]["name"]
