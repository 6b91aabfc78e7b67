"""Options about single nodes of the model."""

from __future__ import annotations

from popc.options.annotations import Rule, RulesKind
from popc.options.kinds import Truth
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["NodeOptions"]


@inheritable
class NodeOptions:
    """The settings of single nodes of the model."""

    annotate: tuple[Rule, ...] = option(
        RulesKind(),
        (),
        "Annotations of nodes, without editing the model. A list of tables, each with "
        "selectors, of which all must fit (nodes: a name or pattern; op_type; output: a tensor "
        "that the node computes), and annotations: schedule_priority (a number), "
        "exclude_patterns (passes that leave the ops as they are), recompute (checkpoint or "
        "recompute), partials_type or output_type (float or half), stochastic_rounding (true or "
        "false), serialize_matmul_mode with serialize_matmul_factor, serialize_lookup_factor, "
        "inplace_op_names with inplace_op_priorities (see docs/products.md), virtual_graph and "
        "pipeline_stage (see docs/pipelining.md). The selectors on_virtual_graph, "
        "on_pipeline_stage and in_pass are about ops where they have been put. PopART's names, "
        "such as __schedule_priority, are understood too. In TOML: "
        '[[annotate]] nodes = "block*" schedule_priority = 1.',
    )
    enable_serialized_matmuls: bool = option(
        Truth(),
        True,
        "Cut products of matrices and lookups as annotations say. Without, "
        "serialize_matmul_mode, serialize_matmul_factor and serialize_lookup_factor have no "
        "effect.",
        popart="enableSerializedMatmuls",
    )
