"""The values that replicas must agree about, before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc.ir import Graph, Tensor
from popc_runtime.errors import ModelError

if TYPE_CHECKING:
    from popc.ops.divergence import Divergence

__all__ = ["check_replicas"]

_HINT = (
    "reduce it over all replicas, broadcast the inputs that decide it (replicated_stream_mode), or "
    "mark it with AssumeEqualAcrossReplicas if you know that it is equal"
)


def check_replicas(graph: Graph, replicas: int) -> None:
    """Check that replicas meet wherever they exchange data, and keep equal what they share.

    Raises:
        ModelError: an exchange, or a transfer, stands in a branch or loop that some replicas may
            not go through; or a variable that all share may get different values.
    """
    if replicas == 1:
        return
    from popc.ops.divergence import find_divergence

    divergence = find_divergence(graph, replicas)
    problems = [
        f"{inner.op_type} ({inner.settings.origin}) is inside {outer.op_type} "
        f"({outer.settings.origin}), whose condition may differ between replicas"
        for outer, inner in divergence.meetings()
    ]
    if problems:
        raise ModelError(
            "some replicas may never reach an exchange of data that others wait for",
            details=tuple(dict.fromkeys(problems)),
            hint=_HINT,
        )
    writers = (op for part in graph.walk() for op in part.ops if op.op_type == "CopyVarUpdate")
    spoiled = [
        op.operand(0).name
        for op in writers
        if _is_spoiled(op.operand(0), op.operand(1), divergence)
    ]
    if spoiled:
        raise ModelError(
            f"replicas share the variables {', '.join(spoiled)}, but would give them different "
            "values",
            hint="give each replica its own with variable_settings, or reduce the values",
        )


def _is_spoiled(variable: Tensor, value: Tensor, divergence: Divergence) -> bool:
    """True if replicas that hold the same of ``variable`` may give it different values."""
    if value not in divergence.tensors:
        return False
    if variable not in divergence.tensors:
        return True
    held = divergence.parts.get(variable)
    return held is not None and divergence.parts.get(value) != held
