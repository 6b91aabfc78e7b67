"""Tensors that are kept off chip if the program does not fit otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime.errors import OptionError
from tests.support.small_targets import small_target, tower

_TRAIN: dict[str, Any] = {
    "loss": {"type": "mse", "input": "y", "label": "t"},
    "optimizer": {"type": "adam", "learning_rate": 0.01},
}
_KINDS = ("optimizer_state", "weight", "activation")


def _options(target: str, storage: str, *kinds: str) -> dict[str, Any]:
    return {
        "target": target,
        "allow_out_of_memory": True,
        **{f"{kind}_tensor_location": {"storage": storage} for kind in kinds},
    }


def _peak(target: str, *kinds: str) -> int:
    """The bytes of the busiest tile with ``kinds`` off chip."""
    options = _options(target, "off_chip", *kinds)
    report = popc.estimate(tower(), dims={"batch": 8}, options=options, **_TRAIN)
    return max(chip.peak_bytes for chip in report.memory)


def _kept_off_chip(archive: popc.Archive) -> list[str]:
    settings: dict[str, Any] = {
        option.name: dict(cast("Any", option.value))
        for option in archive.manifest.options
        if option.name.endswith("_tensor_location")
    }
    return [
        name.removesuffix("_tensor_location")
        for name, setting in settings.items()
        if setting.get("storage") == "off_chip"
    ]


def test_as_much_as_has_to_go(tmp_path: Path) -> None:
    """What is needed least often goes first; results stay the same."""
    large = small_target(tmp_path, kilobytes=600)
    peaks = [_peak(large, *_KINDS[:count]) for count in range(3)]
    assert peaks[0] > peaks[1] > peaks[2]
    samples = np.random.default_rng(0).standard_normal((2, 8, 64), np.float32)
    results = []
    for bound in (600 << 10, *peaks[1:], 1 << 10):
        target = small_target(tmp_path, kilobytes=-(-bound // 1024))
        archive = popc.compile(
            tower(), dims={"batch": 8}, options=_options(target, "when_needed", *_KINDS), **_TRAIN
        )
        program = popc_runtime.load(archive.to_bytes())
        for _ in range(2):
            program.run(x=samples[0], t=samples[1])
        state = program.state.read()
        results.append((_kept_off_chip(archive), [state[name].tobytes() for name in sorted(state)]))
    assert [set(kinds) for kinds, _ in results] == [
        set(_KINDS[:count]) for count in range(len(_KINDS) + 1)
    ]
    assert all(values == results[0][1] for _, values in results)


def test_a_target_without_streaming_memory_keeps_everything() -> None:
    options = {"target": "ipu1", "weight_tensor_location": {"storage": "when_needed"}}
    archive = popc.compile(tower(), dims={"batch": 8}, options=options)
    assert _kept_off_chip(archive) == []


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_location_override": {"w0": {"storage": "when_needed"}}},
        {"annotate": [{"nodes": "mul0", "output_tensor_location": "storage=when_needed"}]},
    ],
)
def test_single_tensors_are_not_decided_about(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        popc.compile(tower(), dims={"batch": 8}, options=options)
    assert "is decided for kinds of tensors" in "\n".join(caught.value.details)
