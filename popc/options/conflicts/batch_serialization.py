"""Options about batch serialization that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.groups.batch_serialization import PartsMethod
from popc.options.options import Options

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Parts that loops cannot make."""
    if options.method_for_parts is not PartsMethod.LOOP:
        return
    for place in ("execution_phase", "pipeline_stage", "virtual_graph"):
        name = f"batch_serialization_concat_on_{place}_change"
        if not getattr(options, name):
            yield (
                f"{name} is false, but the loops of batch_serialization_method end where the "
                f"{place.replace('_', ' ')} changes: choose unroll_static or unroll_dynamic, "
                f"or leave {name} true"
            )
