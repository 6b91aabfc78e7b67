"""Settings of TensorFlow's IPUConfig: what each becomes."""

from __future__ import annotations

from typing import Any

import pytest

from popc.options import resolve_options
from popc_runtime.errors import OptionError
from popc_runtime.format import Origin


def _set(table: dict[str, Any]) -> dict[str, Any]:
    """Options that are not at their defaults, in plain form."""
    rows = resolve_options(values=table).to_manifest()
    return {row.name: row.value for row in rows if row.origin is not Origin.DEFAULT}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"allow_recompute": True}, {}),  # there is no backward pass
        (
            {
                "convolutions": {"poplar_options": {"availableMemoryProportion": 0.3}},
                "matmuls": {"poplar_options": {"availableMemoryProportion": 0.2}},
            },
            {
                "available_memory_by_op_type": (
                    ("Conv", 0.3),
                    ("ConvTranspose", 0.3),
                    ("Gemm", 0.2),
                    ("MatMul", 0.2),
                )
            },
        ),
        (
            {"device_connection": {"version": "ipu2"}, "ipu_model": {"version": "ipu2"}},
            {"target": "ipu2"},
        ),
        ({"selection_order": "SelectionOrder.HOOF"}, {"ipu_selection_order": "hoof"}),
        ({"auto_select_ipus": 2}, {"num_ipus": 2}),
        (
            {"compilation_poplar_options": {"debug.allowOutOfMemory": "true"}},
            {"allow_out_of_memory": True},
        ),
        (
            {"matmuls": {"poplar_options": {"availableMemoryProportion": 0.2}}},
            {"available_memory_by_op_type": (("Gemm", 0.2), ("MatMul", 0.2))},
        ),
        ({"device_connection": {"version": "ipu2"}}, {"target": "ipu2"}),
        (
            {"floating_point_behaviour": {"inv": True, "oflo": True}},
            {
                "enable_floating_point_checks": True,
                "floating_point_exceptions": ("invalid", "overflow"),
            },
        ),
        (
            {"floating_point_behaviour": {"set_all": True}},
            {
                "enable_floating_point_checks": True,
                "floating_point_exceptions": ("div0", "invalid", "overflow"),
                "enable_stochastic_rounding": True,
                "nan_on_overflow": True,
            },
        ),
        (
            {"floating_point_behaviour": {"nanoo": True}},
            {"nan_on_overflow": True},
        ),
        (
            {"io_tiles": {"num_io_tiles": 32, "place_ops_on_io_tiles": True}},
            {
                "num_io_tiles": 32,
                "tile_sets": (("*", "io"),),
                "io_tile_memory_proportion": 0.9,
            },
        ),
        (
            {"optimizations.maximum_inter_ipu_copies_buffer_size": 4096},
            {"merge_ipu_copies_bytes": 4096},
        ),
        ({"floating_point_behaviour.esr": "ON"}, {"enable_stochastic_rounding": True}),
        (
            {"slices": {"poplar_options": {"availableMemoryProportion": "0.1"}}},
            {"available_memory_by_op_type": (("Gather", 0.1), ("ScatterND", 0.1))},
        ),
        (
            {"optimizations.maximum_all_gather_buffer_size": 9},
            {"merge_all_gather_collectives": True, "merge_all_gather_bytes": 9},
        ),
        ({"optimizations.enable_fast_math": True}, {"enable_fast_math": True}),
        (
            {"optimizations": {"maximum_cross_replica_sum_buffer_size": 1000}},
            {"merge_all_reduce_collectives": True, "merge_all_reduce_bytes": 1000},
        ),
        (
            {
                "optimizations": {
                    "maximum_reduce_scatter_buffer_size": 8,
                    "maximum_send_recv_cluster_size": 64,
                }
            },
            {
                "merge_reduce_scatter_collectives": True,
                "merge_reduce_scatter_bytes": 8,
                "merge_exchange_bytes": 64,
                "enable_merge_exchange": True,
            },
        ),
        (
            {"optimizations": {"enable_graph_outlining": False, "combine_matmuls": True}},
            {"enable_outlining": False, "combine_matmuls": True},
        ),
        ({"scheduling": {"algorithm": "POST_ORDER"}}, {"scheduling_algorithm": "post_order"}),
    ],
)
def test_tensorflow(table: dict[str, Any], expected: dict[str, Any]) -> None:
    assert _set(table) == {"enable_outlining": True, **expected}


def test_recomputation_of_tensorflow_is_for_training() -> None:
    options = resolve_options(values={"allow_recompute": True}, trains=True)
    assert options.auto_recomputation == "standard"


def test_updates_alone_are_rounded_at_random() -> None:
    table = {"floating_point_behaviour": {"esr": "REPLICA_IDENTICAL_ONLY"}}
    options = resolve_options(values=table, trains=True)
    assert not options.enable_stochastic_rounding
    assert [str(rule) for rule in options.annotate] == [
        'in_pass = "update", stochastic_rounding = 1'
    ]
    assert resolve_options(values=table).annotate == ()


def test_versions_that_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="given twice"):
        _set({"device_connection": {"version": "ipu1"}, "ipu_model": {"version": "ipu2"}})
