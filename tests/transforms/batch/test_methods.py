"""Whole networks: results, memory, and what stays whole, for every method and context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.compiler import Planned
from popc.request import make_options
from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from samples.networks import digits_cnn, digits_mlp, sorting_transformer
from tests.support.compiling import CHECKED, planned_model
from tests.support.remembered import remembered
from tests.training.deep import deep_transformer

BATCH = 64
METHODS = ("unroll_static", "unroll_dynamic", "loop")
TRAIN: dict[str, Any] = {
    "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
    "optimizer": {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9},
}
_RNG = np.random.default_rng(0)
_LABEL = _RNG.integers(0, 10, BATCH).astype(np.int32)
_TOKENS = _RNG.integers(0, 10, (BATCH, 10))
NETWORKS: dict[str, tuple[onnx.ModelProto, dict[str, Array]]] = {
    "cnn": (digits_cnn(), {"image": _RNG.random((BATCH, 1, 8, 8), np.float32), "label": _LABEL}),
    "mlp": (digits_mlp(), {"image": _RNG.random((BATCH, 64), np.float32),
                                    "label": _LABEL}),
    "transformer": (sorting_transformer(layers=1),
                    {"tokens": _TOKENS, "label": np.sort(_TOKENS).astype(np.int32)}),
}  # fmt: skip


def _options(**options: Any) -> dict[str, Any]:
    named = {f"batch_serialization_{name}": value for name, value in options.items()}
    return {**named, "verify_ir": True}


def _compiled(
    model: onnx.ModelProto, train: Any = None, batch: int | None = BATCH, **options: Any
) -> Planned:
    dims = {"batch": batch} if batch else {}
    return planned_model(model, _options(**options), dims=dims, train=train)


def _results(
    name: str,
    folder: Path,
    train: Any = None,
    more: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Array]:
    """The results of two runs and all variables after them."""
    model, feeds = NETWORKS[name]
    every = {**CHECKED, **_options(**options), **(more or {})}
    archive = popc.compile(model, dims={"batch": BATCH}, train=train, options=every)
    program = popc_runtime.load(archive.save(folder / "x.popx", force=True))
    feeds = {key: array for key, array in feeds.items() if train or key != "label"}
    times = every.get("batches_per_step", 1) * every.get("accumulation_factor", 1)
    if times > 1:
        shape = [every[key] for key in ("batches_per_step", "accumulation_factor")
                 if every.get(key, 1) > 1]  # fmt: skip
        feeds = {key: np.broadcast_to(array, (*shape, *array.shape)).copy()
                 for key, array in feeds.items()}  # fmt: skip
    found = [array for _ in range(2) for array in program.run(feeds).values()]
    return [*found, *program.state.read().values()]


_expected: Final = remembered(_results)  # of whole batches


def _assert_close(found: list[Array], expected: list[Array]) -> None:
    """A matrix product of fewer rows may be added up in another order: not bit for bit."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_inference(name: str, method: str, tmp_path: Path) -> None:
    expected = _expected(name, tmp_path)
    _assert_close(_results(name, tmp_path, factor=4, method=method), expected)


def test_convolutions_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    expected = _expected("cnn", tmp_path)
    for one, other in zip(_results("cnn", tmp_path, factor=8), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("context", ["fwd", "bwd"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_training(name: str, method: str, context: str, tmp_path: Path) -> None:
    """Gradients are added up part by part: equal up to rounding."""
    expected = _expected(name, tmp_path, TRAIN)
    found = _results(name, tmp_path, TRAIN, factor=4, method=method, transform_context=context)
    _assert_close(found, expected)


@pytest.mark.parametrize("context", ["fwd", "bwd"])
@pytest.mark.parametrize("method", ["unroll_static", "loop"])
@pytest.mark.parametrize(
    "more",
    [
        {"batches_per_step": 2},
        {"accumulation_factor": 2},
        {"batches_per_step": 2, "accumulation_factor": 2},
        {"auto_recomputation": "standard"},
        {"decompose_grad_sum": True},
        {"enable_outlining": True, "outline_threshold": 1.0},
        {"virtual_graph_mode": "auto", "num_ipus": 2},
        {
            "virtual_graph_mode": "auto",
            "num_ipus": 2,
            "enable_pipelining": True,
            "accumulation_factor": 4,
        },
        {"virtual_graph_mode": "execution_phases", "num_ipus": 2, "execution_phases": 2},
        {"merge_var_update": "all"},
        {"anchors": {"Gradient___fc1.weight": "all"}},
    ],
    ids=str,
)
def test_other_options(more: dict[str, Any], method: str, context: str, tmp_path: Path) -> None:
    expected = _expected("mlp", tmp_path, TRAIN, more)
    found = _results(
        "mlp", tmp_path, TRAIN, more, factor=4, method=method, transform_context=context
    )
    _assert_close(found, expected)


def test_gradients_of_activations_can_be_anchored(tmp_path: Path) -> None:
    more = {"anchors": {"Gradient___relu_2": "all", "relu_2": "all"}}
    expected = _expected("mlp", tmp_path, TRAIN, more)
    for context in ("fwd", "bwd"):
        found = _results("mlp", tmp_path, TRAIN, more, factor=4, transform_context=context)
        _assert_close(found, expected)


# -- memory ----------------------------------------------------------------------------------------


def _arena(name: str, train: Any, **options: Any) -> int:
    plan = _compiled(NETWORKS[name][0], train, batch=1024, **options).plan
    assert plan is not None
    return plan.arena_bytes


_whole_arena: Final = remembered(_arena)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("train", [None, TRAIN], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_memory_shrinks_with_the_factor(name: str, train: Any, method: str) -> None:
    whole = _whole_arena(name, train)
    contexts = ("fwd", "bwd") if train else ("fwd",)
    for context in contexts:
        sizes = [
            _arena(name, train, factor=factor, method=method, transform_context=context)
            for factor in (2, 8)
        ]
        assert whole > sizes[0] > sizes[1]
        assert sizes[1] < whole / 2


# -- what stays whole ------------------------------------------------------------------------------


def test_ops_that_stay_whole_are_named() -> None:
    """Dropout draws random numbers; what is around it is cut."""
    options = {"factor": 2, "transform_context": "bwd"}
    done = _compiled(deep_transformer(1), TRAIN, None, **options)
    assert done.model is not None
    (note,) = [note for note in done.model.notes if "batch_serialization" in note]
    assert "Dropout" in note
    assert "random numbers" in note
    phases = {op.settings.batch_phase for op in done.graph.ops}
    assert phases == {None, 0, 1}


def test_whole_ops_do_not_change_results(tmp_path: Path) -> None:
    model = deep_transformer(1)
    feeds = {"x": _RNG.standard_normal((8, 8, 16), np.float32)}
    found = []
    for options in ({}, _options(factor=4), _options(factor=4, method="loop")):
        archive = popc.compile(model, options=options)
        program = popc_runtime.load(archive.save(tmp_path / "x.popx", force=True))
        found.append(list(program.run(feeds).values()))
    for got in found[1:]:
        _assert_close(got, found[0])


def test_a_loop_whose_parts_overlap_is_written_out() -> None:
    schedules: dict[str, Any] = {"batch_schedule": "overlap_on_io", "factor": 4}
    loop, dynamic = (
        _compiled(digits_cnn(), TRAIN, method=method, **schedules)
        for method in ("loop", "unroll_dynamic")
    )
    orders = [
        [op.op_type for op in planned.schedule.orders[planned.graph]] for planned in (loop, dynamic)
    ]
    assert orders[0] == orders[1]


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"factor": 5}, "5 does not divide the batch, 64 (of input 'image')"),
        ({"factor": 128}, "the batch, 64 (of input 'image'), is smaller than the factor"),
        ({"factor": 2, "axes": {"image": "none"}}, "no input has a batch"),
        ({"factor": 2, "axes": {"imag": 0}}, "names 'imag', but the inputs are: image"),
        ({"factor": 2, "axes": {"image": 6}}, "of 'image' is 6, but it is float32[64,1,8,8]"),
    ],
)
def test_factors_and_axes_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        _compiled(digits_cnn(), **options)
    assert said in "\n".join([caught.value.message, *caught.value.details])


def test_the_batch_need_not_be_the_first_dimension(tmp_path: Path) -> None:
    """Cut along the rows of the image, nothing but the first op could be: still the same."""
    expected = _expected("mlp", tmp_path)
    _assert_close(_results("mlp", tmp_path, factor=4, axes={"ima*": 1}), expected)


def test_names_of_popart() -> None:
    options = make_options(
        {
            "batchSerializationSettings.factor": 4,
            "batchSerializationSettings": {
                "method": "UnrollStatic",
                "transformContext": "Forward",
                "batchSchedule": "OverlapOnIo",
                "concatOnVirtualGraphChange": False,
            },
        }
    )
    assert options.batch_serialization_factor == 4
    assert options.batch_serialization_method == "unroll_static"
    assert options.batch_serialization_transform_context == "fwd"
    assert options.batch_serialization_batch_schedule == "overlap_on_io"
    assert not options.batch_serialization_concat_on_virtual_graph_change


def test_an_op_can_be_excluded() -> None:
    rule = {"op_type": "MaxPool", "exclude_patterns": "batch_serialization"}
    options = {**_options(factor=4), "annotate": [rule]}
    done = planned_model(digits_cnn(), options, dims={"batch": BATCH})
    kinds = [op.op_type for op in done.graph.ops]
    assert kinds.count("MaxPool") == 2
    assert kinds.count("Conv") == 12
    assert "MaxPool, it is excluded" in done.model.notes[0]
