"""The page in a browser: what a person sees, and what happens on a click."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

import popc
from popc.reporting import profile_of, render_page
from samples.networks import digits_cnn
from tests.reporting.browser import Page, find_browser, open_page
from tests.reporting.models import HOSTILE, chain, hostile_model

_BROWSER = find_browser()
_REASON = "no Chromium: install one (Debian: chromium), or name one in POPC_TEST_BROWSER"

pytestmark = pytest.mark.xdist_group("browser")
in_browser = pytest.mark.skipif(_BROWSER is None, reason=_REASON)


def _page_of(
    model: onnx.ModelProto, folder: Path, options: Mapping[str, object] | None = None, **more: Any
) -> Path:
    archive = popc.compile(model, options={"cost_report": True, **(options or {})}, **more)
    path = folder / "report.html"
    path.write_text(render_page(profile_of(archive, "model <&> one")), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A small network on two chips."""
    folder = tmp_path_factory.mktemp("page")
    path = _page_of(digits_cnn(), folder, {"num_ipus": 2}, dims={"batch": 4})
    assert _BROWSER is not None
    with open_page(_BROWSER, path, folder / "profile") as opened:
        yield opened


_APART: dict[str, object] = {"disabled_passes": ["fuse_elementwise"]}


def _texts(page: Page, selector: str) -> list[str]:
    found = page(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)")
    assert isinstance(found, list)
    return found


def _names(page: Page) -> list[str]:
    return _texts(page, "#ops-table td.name")


def _close(page: Page) -> None:
    if not page("document.querySelector('#detail').hidden"):
        page.click("#detail .close")


@in_browser
def test_everything_is_there_and_nothing_complains(page: Page) -> None:
    assert page("document.title") == "model <&> one: report"
    assert page("document.querySelector('h1').innerText") == "model <&> one"
    for chart in ("memory", "liveness", "phase", "type", "op", "trace"):
        assert page(f"document.querySelectorAll('#{chart}-chart svg.main-svg').length") > 0, chart
        assert page(f"document.querySelector('#{chart}-chart').ariaLabel"), chart
    for table in ("category", "vertex", "ops", "schedule", "tensors", "options", "provenance"):
        assert page(f"document.querySelectorAll('#{table}-table tbody tr').length") > 0, table
    assert page("document.querySelectorAll('nav a').length") == page(
        "document.querySelectorAll('main > section').length"
    )
    assert page.complaints == []


@in_browser
def test_search_filters_and_sort_orders_rows(page: Page) -> None:
    total = len(_names(page))
    page.write("#ops-table input", "conv MAXPOOL")
    page.until("document.querySelectorAll('#ops-table tbody tr').length === 0")
    page.write("#ops-table input", "conv")
    page.until("document.querySelectorAll('#ops-table tbody tr').length === 3")
    assert all("conv" in name for name in _names(page))
    assert _texts(page, "#ops-table .count") == [f"3 of {total}"]
    page.write("#ops-table input", "")
    page.until(f"document.querySelectorAll('#ops-table tbody tr').length === {total}")

    choose = "s => { s.value = 'MatMul'; s.dispatchEvent(new Event('change')); }"
    page(f"({choose})(document.querySelector('#ops-table select'))")
    assert {"MatMul"} == set(_texts(page, "#ops-table td:nth-child(3)"))
    page(f"({choose.replace('MatMul', '')})(document.querySelector('#ops-table select'))")

    cycles = [int(text.replace(",", "")) for text in _texts(page, "#ops-table td:nth-child(4)")]
    assert cycles == sorted(cycles, reverse=True)
    page.click("#ops-table th:nth-child(4) button")
    cycles = [int(text.replace(",", "")) for text in _texts(page, "#ops-table td:nth-child(4)")]
    assert cycles == sorted(cycles)
    assert page("document.querySelector('#ops-table th:nth-child(4)').ariaSort") == "ascending"
    page.click("#ops-table th:nth-child(2) button")
    names = _names(page)
    assert names == sorted(names)
    page.click("#ops-table th:nth-child(4) button")


@in_browser
def test_a_click_on_a_bar_shows_its_op(page: Page) -> None:
    wanted = page("DATA.ops.name[RANKED[2]]")
    bars = "#op-chart .barlayer .trace:nth-child(1) .point:nth-child(3) path"
    page.click(bars)
    page.until("!document.querySelector('#detail').hidden")
    assert _texts(page, "#detail h3") == [wanted]
    assert _texts(page, "#ops-table tr.selected td.name") == [wanted]
    assert _texts(page, "#schedule-table tr.selected td.name") == [wanted]
    # The same op is marked in the other charts.
    assert page("document.querySelector('#trace-chart').layout.shapes.length") == 1
    assert page("document.querySelector('#liveness-chart').layout.shapes.length") == 2
    phases = _texts(page, "#detail tbody tr")
    assert len(phases) == page("DATA.ops.phases[RANKED[2]].length")
    _close(page)
    assert page("document.querySelector('#detail').hidden")


@in_browser
def test_the_trace_and_the_curve_select_too(page: Page) -> None:
    page.click("#trace-chart .barlayer .trace:nth-child(1) .point path")
    page.until("!document.querySelector('#detail').hidden")
    assert page("state.op") >= 0
    page.press("Escape")
    page.until("document.querySelector('#detail').hidden")
    page("document.querySelector('#liveness-chart').scrollIntoView()")
    page.click("#liveness-chart .scatterlayer .points path:nth-child(3)")
    page.until("!document.querySelector('#detail').hidden")
    assert page("state.op") == 2
    _close(page)


@in_browser
def test_keys_reach_everything(page: Page) -> None:
    page("document.querySelector('#ops-table tbody button').focus()")
    name = page("document.activeElement.innerText")
    page.press("Enter")
    page.until("!document.querySelector('#detail').hidden")
    assert _texts(page, "#detail h3") == [name]
    page.press("Escape")
    page("document.querySelector('#ops-table th:nth-child(1) button').focus()")
    page.press("Enter")
    assert page("document.querySelector('#ops-table th:nth-child(1)').ariaSort") == "descending"
    page.press("Tab")
    assert page("document.activeElement.innerText").startswith("op")


@in_browser
def test_chips_are_chosen(page: Page) -> None:
    assert page("document.querySelector('#memory-chart').data[0].type") == "heatmap"
    choose = "s => { s.value = '1'; s.dispatchEvent(new Event('change')); }"
    for name in ("memory", "liveness", "schedule", "tensors"):
        page(f"({choose})(document.querySelector('#{name}-ipu'))")
    traces = page("document.querySelector('#memory-chart').data.map(t => t.name)")
    assert traces[-1] == "limit"
    assert "stack" in traces
    # Nothing runs on the second chip: its tiles hold no temporary data.
    assert page("document.querySelector('#schedule-table tbody tr td:nth-child(5)').innerText") == (
        "0"
    )
    assert page.complaints == []


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_the_window(page: Page, width: int, scheme: str) -> None:
    page.prefer(scheme)
    page.resize(width)
    page.until(f"innerWidth === {width}")
    time.sleep(0.3)  # charts follow the window when it has come to rest
    assert page("document.documentElement.scrollWidth") <= width
    wide = page(
        "[...document.querySelectorAll('.chart svg')]"
        f".filter(e => e.getBoundingClientRect().right > {width} + 1).length"
    )
    assert wide == 0
    text, back = page("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    assert _contrast(text, back) > 7
    assert page.complaints == []


def _contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio of two colours as browsers print them."""

    def luminance(colour: str) -> float:
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@in_browser
def test_it_prints(page: Page) -> None:
    page.resize(1280)
    page.prefer("dark")
    wide = "Math.max(...[...document.querySelectorAll('.chart svg')].map(e => e.clientWidth))"
    page("dispatchEvent(new Event('beforeprint'))")
    page.until(f"{wide} <= 720")
    page.until("document.querySelector('#op-chart').layout.font.color == '#000'")
    page("dispatchEvent(new Event('afterprint'))")
    page.until(f"{wide} > 1000")
    assert page.pdf().startswith(b"%PDF")


@in_browser
def test_names_stay_names(tmp_path: Path) -> None:
    path = _page_of(hostile_model(), tmp_path, _APART)
    assert _BROWSER is not None
    with open_page(_BROWSER, path, tmp_path / "profile", 390) as page:
        assert page("window.hacked") is None
        assert any(HOSTILE in name for name in _names(page))
        page("selectOp(2)")
        assert HOSTILE in _texts(page, "#detail h3")[0]
        page("Plotly.Fx.hover('op-chart', [{curveNumber: 0, pointNumber: 0}])")
        page.until("document.querySelectorAll('#op-chart .hoverlayer text').length > 0")
        assert page("document.querySelectorAll('main img, main script').length") == 0
        assert page("document.documentElement.scrollWidth") <= 390
        # Even what got past all this could not run.
        page("document.body.append(Object.assign(document.createElement('script'),"
             " {textContent: 'window.hacked = 1'}))")  # fmt: skip
        assert page("window.hacked") is None


@in_browser
def test_a_chain_names_its_steps(tmp_path: Path) -> None:
    path = _page_of(chain(30, HOSTILE), tmp_path)
    assert _BROWSER is not None
    with open_page(_BROWSER, path, tmp_path / "profile") as page:
        page.write("#ops-table input", f"{HOSTILE}.4")
        page.until("document.querySelectorAll('#ops-table tbody tr').length === 1")
        assert _texts(page, "#ops-table td:nth-child(3)") == ["FusedElementwise"]
        page.write("#ops-table input", "tanh FUSED")
        page.until("document.querySelectorAll('#ops-table tbody tr').length === 2")
        page("selectOp(DATA.ops.node.findIndex(node => node.includes('.4,')))")
        facts = _texts(page, "#detail dd")
        assert any(f"{HOSTILE}.4, {HOSTILE}.5" in fact for fact in facts)
        assert any("Relu, Tanh, Sigmoid, Exp" in fact for fact in facts)
        assert "steps" in _texts(page, "#detail dt")
        assert page("window.hacked") is None
        assert page("document.querySelectorAll('main img, main script').length") == 0


@in_browser
def test_a_thousand_ops_are_no_burden(tmp_path: Path) -> None:
    path = _page_of(chain(1000), tmp_path, _APART)
    assert _BROWSER is not None
    with open_page(_BROWSER, path, tmp_path / "profile") as page:
        assert page("DATA.ops.name.length") >= 1000
        assert page("document.querySelectorAll('#ops-table tbody tr').length") == 100
        assert page("document.querySelectorAll('#trace-chart .point').length") < 1000
        page.click("#ops-table .more")
        assert page("document.querySelectorAll('#ops-table tbody tr').length") == 600
        page.write("#ops-table input", "block.987")
        page.until("document.querySelectorAll('#ops-table tbody tr').length === 1")
        page.click("#ops-table td.name button")
        page.until("!document.querySelector('#detail').hidden")
        # Zooming in shows single steps.
        page("Plotly.relayout('trace-chart', {'xaxis.range': [0, TOTAL / 100]}).then(() => 0)")
        page.until("document.querySelector('#trace-chart').data.some(t => t.name === 'Relu')")
        assert page.complaints == []


def test_the_file_needs_nothing_else(tmp_path: Path) -> None:
    text = _page_of(digits_cnn(), tmp_path, dims={"batch": 4}).read_text(encoding="utf-8")
    head = text[: text.index("<script")]
    assert not re.search(r'(src|href)="(?!#|data:)', head)
    assert text.count("<script") >= 3
    assert "default-src &#x27;none&#x27;" in head


def test_text_cannot_end_the_data(tmp_path: Path) -> None:
    for options, key in ((_APART, "name"), ({}, "node")):
        text = _page_of(hostile_model(), tmp_path, options).read_text(encoding="utf-8")
        data = text.partition('id="data">')[2].partition("</script>")[0]
        assert HOSTILE in json.loads(data)["ops"][key][1]
        assert "<img" not in text


def test_the_same_archive_makes_the_same_page(tmp_path: Path) -> None:
    first, second = (
        _page_of(digits_cnn(), tmp_path, dims={"batch": 2}).read_bytes() for _ in range(2)
    )
    assert first == second
