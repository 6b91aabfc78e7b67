"""Progress as scripts and notebooks show it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import popc
from tests.support.models import affine


class Handle:
    """What IPython's display gives for something that changes."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def update(self, thing: Any) -> None:
        """Show it again."""
        self.shown.append((repr(thing), thing._repr_html_()))


def test_scripts_see_lines(capsys: pytest.CaptureFixture[str]) -> None:
    popc.compile(affine(), on_progress=popc.show_progress())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == [
        "import",
        "transform",
        "schedule",
        "plan",
        "lower",
    ]


def test_notebooks_see_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, shell = Handle(), ModuleType("shell")
    shell.kernel = object()  # type: ignore[attr-defined]
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.display = lambda thing, display_id: handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    popc.compile(affine(), on_progress=popc.show_progress())
    assert handle.shown[0][0] == "import       ..."
    text, page = handle.shown[-1]
    assert text.splitlines()[-1].endswith("3 instructions")
    assert page.count("<tr>") == 6
