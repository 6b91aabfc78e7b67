"""Options together: equal results, or an error that names them; never anything else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, islice
from typing import Any

import pytest

from popc.options import SCHEMA, resolve_options
from popc.options.dialects import popart
from popc.options.kinds import Choice, Truth, Whole
from popc.options.schema import OptionSpec
from popc_runtime.errors import OptionError
from popc_runtime.format import Origin
from tests.options.combinations import SETTINGS, Setting, check, find, merged
from tests.options.tiny_networks import NETWORKS

# Combinations that once came out wrong, of a network and its optimizer.
_FIXED = (
    ("mlp", "adam", "pipeline grouped", "activation_tensor_location=off-chip"),
    ("mlp", "adam", "pipeline with overlapping updates", "weight_tensor_location=off-chip"),
    ("mlp", "adam", "pipeline interleaved", "override"),
    ("mlp", "adam", "pipeline interleaved", "parts unroll_dynamic"),
    ("mlp", "adam", "pipeline again", "parts overlap_on_io"),
    ("mlp", "adam", "pipeline by hand", "parts unroll_static"),
    ("mlp", "adam", "chips", "exchange overlap_inner_loop"),
    ("mlp", "adam", "phases", "exchange overlap_loops"),
    ("cnn", "momentum", "pipeline sequential", "weight_tensor_location=off-chip"),
    ("cnn", "momentum", "pipeline sequential", "weight_tensor_location=sharded"),
)


def _holds(network: str, settings: list[Setting], optimizer: str) -> None:
    found = check(network, settings, optimizer)
    if not found.startswith("refused"):
        assert not found, [one.name for one in settings]
        return
    both = merged(settings, trains=bool(optimizer))
    assert both is not None
    assert any(name in found for name in both[0]), found


def _sample(count: int, size: int, optimizer: str, seed: int) -> Iterator[list[Setting]]:
    """Combinations that give no option two values."""
    other = "infer" if optimizer else "train"
    usable = [one for one in SETTINGS if one.only != other]
    source = random.Random(seed)

    def drawn() -> Iterator[list[Setting]]:
        if size == 2:
            pairs = list(combinations(usable, 2))
            source.shuffle(pairs)
            yield from map(list, pairs)
        while size > 2:
            yield source.sample(usable, size)

    possible = (one for one in drawn() if merged(one, trains=bool(optimizer)) is not None)
    return islice(possible, count)


def _list(count: int, optimizer: str) -> list[list[Setting]]:
    return [*_sample(count, 2, optimizer, seed=0)]


def _named(settings: list[Setting]) -> str:
    return " + ".join(one.name for one in settings)


@pytest.mark.parametrize("names", _FIXED, ids=" + ".join)
def test_known_combinations(names: tuple[str, ...]) -> None:
    network, optimizer, *settings = names
    assert not check(network, find(settings), optimizer)


@pytest.mark.parametrize("settings", _list(12, "adam"), ids=_named)
def test_some_pairs_in_training(settings: list[Setting]) -> None:
    _holds("mlp", settings, "adam")


@pytest.mark.parametrize("settings", _list(8, ""), ids=_named)
def test_some_pairs_in_inference(settings: list[Setting]) -> None:
    _holds("transformer", settings, "")


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", ["momentum", ""])
@pytest.mark.parametrize(("size", "count"), [(2, 5000), (3, 200), (4, 200)])
def test_combinations(network: str, optimizer: str, size: int, count: int) -> None:
    for settings in _sample(count, size, optimizer, seed=size):
        _holds(network, settings, optimizer)


def test_host_syncs_and_phases_are_refused_by_name() -> None:
    found = check("mlp", find(["phases", "group_host_sync=True"]), "adam")
    assert "group_host_sync" in found
    assert "execution_phases" in found


def _value(spec: OptionSpec) -> Any:
    """A value of a plain option that is not its default; ``None`` for other kinds."""
    kind = spec.kind
    if isinstance(kind, Truth):
        return not spec.default
    if isinstance(kind, Whole):
        return spec.default + (1 if spec.default < kind.high else -1)
    if isinstance(kind, Choice):
        return next(one for one in kind.choices if one != spec.default)
    return None


_PLAIN = [spec for spec in SCHEMA if spec.popart and _value(spec) is not None]


@pytest.mark.parametrize("spec", _PLAIN, ids=[spec.popart for spec in _PLAIN])
def test_names_of_popart_reach_their_options(spec: OptionSpec) -> None:
    value = _value(spec)
    problems: tuple[str, ...] = ()
    try:
        options = resolve_options(values={spec.popart: value})
    except OptionError as error:  # by itself it makes no sense, and is refused by our name
        problems = error.details
    else:
        assert getattr(options, spec.name) == value
        assert options.origin(spec.name) is not Origin.DEFAULT
    assert all(spec.name in one for one in problems), problems


def test_what_is_supported_is_not_called_unsupported() -> None:
    assert not [name for name in popart.OPTIONS if popart.why_unsupported(name)]
