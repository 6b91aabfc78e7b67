"""The replicas that share variables, as the option ``variable_settings`` says."""

from __future__ import annotations

from fnmatch import fnmatchcase

from popc.ir import Graph
from popc.options import Options, did_you_mean
from popc_runtime.errors import OptionError

__all__ = ["set_variable_groups"]


def set_variable_groups(graph: Graph, options: Options) -> None:
    """Note for each variable of ``graph`` which of its values each replica holds.

    Raises:
        OptionError: names or patterns fit no variable; lists all of them.
    """
    names = [variable.name for variable in graph.variables]
    unknown = [
        f"there is no variable {pattern!r}: {did_you_mean(pattern, names) or _known(names)}"
        for pattern in options.variable_settings
        if not any(fnmatchcase(name, pattern) for name in names)
    ]
    if unknown:
        raise OptionError(
            "variable_settings names variables that do not exist",
            subject="variable_settings",
            details=tuple(unknown),
        )
    replicas = options.replicated_graph_count
    for variable in graph.variables:
        numbers = options.replica_groups(variable.name).numbers(replicas)
        variable.rows = numbers if any(numbers) else ()


def _known(names: list[str]) -> str:
    if names:
        return f"the variables are {', '.join(names[:12])}"
    return "all weights are constants; set constant_weights to false, or train them"
