"""Targets as data: presets, files, use."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest

from popc.target import (
    ALIASES,
    PRESETS,
    SelectionOrder,
    configure_target,
    find_target,
    hops,
    linked,
    parse_target,
    preset_text,
    select_ipus,
    sync_hops,
)
from popc_runtime.errors import OptionError


@pytest.mark.parametrize(
    ("name", "tiles", "memory", "half", "single"),
    [
        ("ipu1", 1216, 304 << 20, 124.5, 31.1),
        ("ipu2", 1472, 940_572_672, 250.6, 62.6),
        ("c600", 1472, 940_572_672, 282.6, 70.7),
        ("bow", 1472, 940_572_672, 348.6, 87.1),
    ],
)
def test_presets_reach_the_published_peaks(
    name: str, tiles: int, memory: int, half: float, single: float
) -> None:
    target = find_target(name)
    assert target.tiles_per_ipu == tiles
    assert target.memory_bytes == memory
    conv = target.conv
    assert target.peak_flops(conv.fp16_in_fp16_out_units, 4) / 1e12 == pytest.approx(half, abs=0.1)
    peak = target.peak_flops(conv.fp32_in_fp32_out_units, 1) / 1e12
    assert peak == pytest.approx(single, abs=0.1)


def test_exchange_of_a_chip_is_as_published() -> None:
    for name in ("ipu1", "ipu2"):
        target = find_target(name)
        bandwidth = target.exchange.bytes_per_cycle * target.tile.count * target.tile.clock_hz
        assert bandwidth / 1e12 == pytest.approx(7.8, abs=0.05)


def test_host_link_is_as_measured() -> None:
    assert find_target("ipu2").host_bytes_per_cycle == pytest.approx(6.0, abs=0.05)


def test_names() -> None:
    assert {find_target(name).name for name in (*PRESETS, *ALIASES)} == set(PRESETS)
    with pytest.raises(OptionError, match="no target 'ipu9'") as caught:
        find_target("ipu9")
    assert "bow" in caught.value.hint


def test_presets_survive_their_own_file() -> None:
    for name in PRESETS:
        again = parse_target(tomllib.loads(preset_text(name)), name)
        assert again == find_target(name)
        assert again.to_dict()["links"]["topology"] in {"ladder", "none"}


def test_a_file_may_change_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nbased_on = "ipu2"\n[tile]\ncount = 64\n', encoding="utf-8")
    target = find_target(str(path))
    assert (target.name, target.tile.count) == ("mine", 64)
    assert target.conv == find_target("ipu2").conv


def test_all_problems_of_a_file_are_reported() -> None:
    data: dict[str, Any] = tomllib.loads(preset_text("ipu2"))
    data["tile"] |= {"count": 0, "clock_hz": "fast", "interleaved_bytes": 1 << 30, "cores": 3}
    data["links"] |= {"topology": "torus", "efficiency": 2}
    data["conv"]["products_by_columns"] = 1
    data["colour"] = "red"
    del data["host"]
    with pytest.raises(OptionError) as caught:
        parse_target(data, "mine.toml")
    text = "\n".join(caught.value.details)
    for part in (
        "tile.count is 0", "tile.clock_hz is 'fast'", "tile.cores is unknown",
        "tile.interleaved_bytes is 1,073,741,824, more", "links.topology is 'torus'",
        "links.efficiency is 2", "products_by_columns is 1, but must be true", "colour is unknown",
        "[host] is missing",
    ):  # fmt: skip
        assert part in text
    assert len(caught.value.details) == 9


def test_missing_fields_and_chips_without_links() -> None:
    data: dict[str, Any] = tomllib.loads(preset_text("ipu21"))
    data["links"]["max_ipus"] = 4
    del data["conv"]["pipeline_depth"]
    with pytest.raises(OptionError) as caught:
        parse_target(data, "x")
    text = "\n".join(caught.value.details)
    assert "conv.pipeline_depth is missing" in text
    assert "chips without links work alone" in text


@pytest.mark.parametrize(
    ("text", "why"), [("[tile", "Expected"), ("\xff", "it is not UTF-8 text$")]
)
def test_files_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match=f"not a TOML file: {why}"):
        find_target(str(path))
    with pytest.raises(OptionError, match="cannot read"):
        find_target(str(tmp_path / "y.toml"))


def test_a_program_may_use_part_of_a_target() -> None:
    target = configure_target(find_target("ipu2"), num_ipus=4, tiles_per_ipu=1000, num_io_tiles=32)
    assert target.compute_tiles == 968
    assert target.memory_bytes == 4 * 1000 * 638_976


def test_what_a_target_cannot_do() -> None:
    with pytest.raises(OptionError) as caught:
        configure_target(find_target("c600"), num_ipus=3, tiles_per_ipu=5000, num_io_tiles=5001)
    assert len(caught.value.details) == 5


def test_selection_orders() -> None:
    assert select_ipus(8, SelectionOrder.ZIGZAG) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert select_ipus(8, SelectionOrder.SNAKE) == (0, 1, 3, 2, 4, 5, 7, 6)
    assert select_ipus(8, SelectionOrder.HOOF) == (0, 2, 4, 6, 7, 5, 3, 1)
    assert select_ipus(8, SelectionOrder.AUTO) == select_ipus(8, SelectionOrder.SNAKE)
    assert select_ipus(4, SelectionOrder.AUTO, closed=True) == select_ipus(4, SelectionOrder.HOOF)
    assert select_ipus(1, SelectionOrder.HOOF) == (0,)


@pytest.mark.parametrize("count", [2, 4, 8, 16, 64])
def test_neighbours_are_linked(count: int) -> None:
    snake = select_ipus(count, SelectionOrder.SNAKE)
    hoof = select_ipus(count, SelectionOrder.HOOF)
    for order in (snake, hoof):
        assert sorted(order) == list(range(count))
        assert all(linked(*pair) for pair in itertools.pairwise(order))
    assert linked(hoof[0], hoof[-1])
    assert hops(0, count - 1) == count // 2


def test_sync_hops() -> None:
    assert [sync_hops(count) for count in (1, 2, 4, 16, 64)] == [1, 1, 2, 5, 17]
