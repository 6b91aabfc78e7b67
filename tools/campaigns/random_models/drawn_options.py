"""Random options under which results stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from popc.transforms import optional_passes
from tools.campaigns.random_models.recipe import Recipe

__all__ = ["random_options"]

_Draw: TypeAlias = Callable[[np.random.Generator, Recipe], dict[str, Any]]


def _of(name: str, *values: object) -> _Draw:
    """One of some values of an option."""

    def draw(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
        del recipe
        return {name: values[int(random.integers(len(values)))]}

    return draw


# From their defaults to the other value.
_FLAGS: Final = {
    "combine_convolutions": True,
    "combine_embedding_lookups": True,
    "combine_matmuls": True,
    "constant_weights": False,
    "enable_inplace": False,
    "pack_weights": False,
    "winograd": False,
}


def _flag(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    del recipe
    name = sorted(_FLAGS)[int(random.integers(len(_FLAGS)))]
    return {name: _FLAGS[name]}


def _disabled(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    del recipe
    names = optional_passes()
    count = int(random.integers(1, 6))
    chosen = random.choice(len(names), size=count, replace=False)
    return {"disabled_passes": sorted(names[int(i)] for i in chosen)}


def _batches(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    """Cut the batch into as many parts as it can be."""
    batch = min((array.shape[0] for array in recipe.inputs.values() if array.ndim), default=1)
    factors = [f for f in (2, 3, 4, 8) if batch % f == 0]
    if not factors:
        return {}
    methods = ("unroll_dynamic", "unroll_static", "loop")
    return {
        "batch_serialization_factor": factors[int(random.integers(len(factors)))],
        "batch_serialization_method": methods[int(random.integers(3))],
    }


def _phases(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    del recipe
    return {
        "virtual_graph_mode": "execution_phases",
        "num_ipus": 2,
        "execution_phases": int(random.integers(2, 5)),
    }


def _chips(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    del recipe
    pipelined = {"enable_pipelining": True, "batches_per_step": 4} if random.random() < 0.4 else {}
    return {"virtual_graph_mode": "auto", "num_ipus": 2, **pipelined}


def _outlined(random: np.random.Generator, recipe: Recipe) -> dict[str, Any]:
    del recipe
    return {
        "enable_outlining": True,
        "outline_threshold": float(random.choice([0.05, 1.0])),
        "enable_outlining_copy_cost_pruning": bool(random.integers(2)),
    }


_DRAWS: Final[tuple[_Draw, ...]] = (
    _of("memory_format", "channels_first", "channels_last"),
    _of("patterns", "no_patterns", "minimal", "all", "all"),
    _of("scheduling_algorithm", "kahn", "clustering", "post_order", "look_ahead", "shortest_path"),
    _of("kahn_tie_breaker", "fifo", "random"),
    _of("scheduler_work_limit", 0),
    _of("weights", "mmap"),
    _of("batches_per_step", 2),
    _of("fold_limit_bytes", 0, 100, 1 << 24),
    *(_flag,) * 6,
    _disabled,
    _disabled,
    _batches,
    _batches,
    _phases,
    _chips,
    _outlined,
)


def random_options(seed: int, recipe: Recipe) -> Mapping[str, Any]:
    """One to four options for the model of that seed; none where a default model is wanted."""
    random = np.random.default_rng([seed, 1])
    options: dict[str, Any] = {}
    for _ in range(int(random.integers(1, 5))):
        options |= _DRAWS[int(random.integers(len(_DRAWS)))](random, recipe)
    return options
