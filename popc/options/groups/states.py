"""Options about what a program keeps from run to run."""

from __future__ import annotations

from popc.options.kinds import Table, Text
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["StateOptions"]


@inheritable
class StateOptions:
    """Inputs that are the outputs of the run before."""

    states: FrozenTable[str] = option(
        Table(
            Text(),
            "from names of inputs to names of outputs",
            example="past.*.key=present.*.key",
        ),
        FrozenTable(),
        "Inputs that the program keeps, each with the output that is its next value. They begin as "
        "zeros. An output that is longer than its input makes that a cache, for which a bound has "
        "to be given. An * stands for any text, the same on both sides. In place of an output, "
        "append lets an input be given for new rows of the caches alone, and hold lets it keep "
        "what is written to the state of the program. Caches that are named as exporters name them "
        "(past_key_values.0.key, present.0.key) need no entry. See docs/generation.md.",
    )
