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
from tests.options.combinations import SUBJECTS, Subject, check, draw_case
from tests.options.settings import SETTINGS, Setting, find, merged

# Combinations that once came out wrong, of a network and its optimizer.
_FIXED = (
    ("mlp", "adam", "pipeline grouped", "activation_tensor_location=off-chip"),
    (
        "mlp",
        "adam",
        "pipeline with overlap_memory_optimized updates",
        "weight_tensor_location=off-chip",
    ),
    ("mlp", "adam", "pipeline interleaved", "override"),
    ("mlp", "adam", "pipeline interleaved", "parts unroll_dynamic"),
    ("mlp", "adam", "pipeline again", "parts overlap_on_io"),
    ("mlp", "adam", "pipeline by hand", "parts unroll_static"),
    ("mlp", "adam", "chips", "exchange overlap_inner_loop"),
    ("mlp", "adam", "phases", "exchange overlap_loops"),
    (
        "deep",
        "adam",
        "pipeline with overlap_cycle_optimized updates",
        "weight_tensor_location=off-chip",
        "optimizer_state_tensor_location=off-chip",
    ),
    ("mlp", "momentum", "weight_tensor_location=sharded", "contiguous collectives"),
    (
        "mlp",
        "momentum",
        "accumulation_factor=4",
        "accumulator_tensor_location=off-chip",
        "contiguous collectives",
    ),
    ("mlp", "adam", "group_host_sync=True", "activation_tensor_location=off-chip"),
    ("mlp", "adam", "three phases", "small updates"),
    ("residual", "", "three phases", "exchange overlap_loops"),
    ("cnn", "momentum", "pipeline sequential", "weight_tensor_location=off-chip"),
    ("cnn", "momentum", "pipeline sequential", "weight_tensor_location=sharded"),
    ("transformer", "momentum", "cut products", "phases batch", "weight_tensor_location=sharded"),
    ("tied", "momentum", "chips", "weight_tensor_location=sharded"),
    ("tied", "momentum", "pipeline grouped", "sharded off chip"),
    ("tied", "momentum", "pipeline grouped", "weight_tensor_location=off-chip"),
    ("recurrent", "momentum", "pipeline 4"),
    ("cnn", "momentum", "precision=float16", "pipeline by hand"),
    ("transformer", "momentum", "pipeline by hand"),
    ("mlp", "", "precision=float16", "three phases"),
    (
        "transformer",
        "momentum",
        "phases batch_clustered_io",
        "accumulation_factor=4",
        "accumulator_tensor_location=off-chip",
    ),
)


# So many sets of settings of the campaign (`python -m tools.campaigns.options`) are tried here.
_DRAWN = 20


@pytest.mark.parametrize("names", _FIXED, ids=" + ".join)
def test_known_combinations(names: tuple[str, ...]) -> None:
    network, optimizer, *settings = names
    assert not check(Subject(network, optimizer), find(settings))


def _holds(subject: Subject, settings: list[Setting]) -> None:
    found = check(subject, settings)
    assert not found or found.startswith("refused: "), [setting.name for setting in settings]


@pytest.mark.parametrize("number", range(_DRAWN))
def test_some_sets_of_settings(number: int) -> None:
    _holds(*draw_case(0, number))


def _pairs(*, trains: bool) -> Iterator[list[Setting]]:
    usable = [setting for setting in SETTINGS if setting.only != ("infer" if trains else "train")]
    pairs = [[*pair] for pair in combinations(usable, 2)]
    random.Random(0).shuffle(pairs)
    return (pair for pair in pairs if merged(pair, trains=trains) is not None)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=" ".join)
def test_pairs_of_settings(subject: Subject) -> None:
    for settings in islice(_pairs(trains=bool(subject.optimizer)), 400):
        _holds(subject, settings)


def test_host_syncs_and_phases_are_refused_by_name() -> None:
    found = check(Subject("mlp", "adam"), find(["phases", "group_host_sync=True"]))
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
        return next(choice for choice in kind.choices if choice != spec.default)
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
    assert all(spec.name in message for message in problems), problems


def test_what_is_supported_is_not_called_unsupported() -> None:
    assert not [name for name in popart.OPTIONS if popart.why_unsupported(name)]
