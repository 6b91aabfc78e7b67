"""What a release consists of agrees: versions, the changelog, the index, other systems' wheels."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

import tools.version as version_tool
from tools.simple_index import write_index
from tools.version import changelog_version, main, problems

_ROOT: Final = Path(__file__).parents[2]
_PROJECTS: Final = ("pyproject.toml", "runtime/pyproject.toml", "facade/pyproject.toml")


def test_one_version_everywhere() -> None:
    assert problems() == []
    for project in _PROJECTS:
        read = tomllib.loads((_ROOT / project).read_text(encoding="utf-8"))["project"]
        assert read["version"] == changelog_version()
        exact = [each for each in read["dependencies"] if each.startswith("popc")]
        assert all(each.endswith(f"=={changelog_version()}") for each in exact)


def test_the_changelog_keeps_its_form() -> None:
    lines = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[[\w.]+\] - \d{4}-\d\d-\d\d", each) for each in sections[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {line[4:] for line in lines if line.startswith("### ")} <= kinds


def test_a_new_version_is_written_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CHANGELOG.md", *_PROJECTS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((_ROOT / name).read_bytes())
    monkeypatch.setattr(version_tool, "_ROOT", tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert main(["77.0.1rc2"]) == 0
    assert capsys.readouterr().out == "77.0.1rc2\n"
    text = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]\n\n## [77.0.1rc2] - 1970-01-02\n" in text
    assert 'popc-runtime==77.0.1rc2"' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="already"):
        main(["77.0.1rc2"])
    facade = tmp_path / "facade" / "pyproject.toml"
    changed = facade.read_text(encoding="utf-8").replace("popc==77.0.1rc2", "popc==0.0.9")
    facade.write_text(changed, encoding="utf-8")
    assert main([]) == 1
    assert 'facade/pyproject.toml: "popc==0.0.9 has 0.0.9' in capsys.readouterr().out


def test_an_index_names_every_file_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "popc_runtime-1.0-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "popc_runtime-1.0.tar.gz").write_bytes(b"sources")
    (tmp_path / "popc-1.0+a-py3-none-any.whl").write_bytes(b"popc")
    top = write_index(tmp_path)
    assert re.findall(r'href="(.*?)"', (top / "index.html").read_text()) == [
        "popc/", "popc-runtime/"
    ]  # fmt: skip
    page = (top / "popc-runtime" / "index.html").read_text()
    links = re.findall(r'href="(.*?)#sha256=\w{64}">(.*?)<', page)
    assert [text for _, text in links] == [Path(address).name for address, _ in links]
    assert all((top / "popc-runtime" / address).resolve().exists() for address, _ in links)
    assert 'href="../../popc-1.0%2Ba-' in (top / "popc" / "index.html").read_text()
