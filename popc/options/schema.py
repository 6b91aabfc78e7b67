"""The one schema of options: every option that exists, with its type, default and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from popc_runtime.format import OptionValue

__all__ = ["SCHEMA", "OptionSpec", "describe_options"]


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option.

    Attributes:
        name: In snake_case; the environment variable is POPC_ and the name in capitals.
        type: "bool", "int", "choice", "names" (a list of names) or "anchors" (a table).
        default: The built-in value.
        help: What it does, one sentence first.
        choices: What "choice" and "names" allow; names of passes are known only at run time.
        minimum: The smallest allowed "int".
        popart: PopART's name for it ("" if it has none).
    """

    name: str
    type: str
    default: OptionValue
    help: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    popart: str = ""


SCHEMA: Final[tuple[OptionSpec, ...]] = (
    OptionSpec(
        "anchors",
        "anchors",
        (),
        "Which values of an output a step returns: a table from tensor name to all, final, sum or "
        "every_n. A name that is no output of the model becomes one. In TOML: "
        '[anchors] y = "final", z = { type = "every_n", n = 2 }; with --set: anchors.y=final, '
        "anchors.z=every_n:2.",
    ),
    OptionSpec(
        "batches_per_step",
        "int",
        1,
        "How many batches one run of the program processes. Inputs and outputs get a leading "
        "dimension of this size if it is larger than 1.",
        minimum=1,
        popart="batchesPerStep",
    ),
    OptionSpec(
        "compression",
        "choice",
        "default",
        "How much time to spend on a small archive.",
        choices=("fast", "default", "max"),
    ),
    OptionSpec(
        "default_anchor",
        "choice",
        "all",
        "Return type of the outputs that anchors does not name.",
        choices=("all", "final", "sum"),
    ),
    OptionSpec(
        "disabled_passes",
        "names",
        (),
        "Passes to leave out. The results stay the same; the program gets larger or slower.",
    ),
    OptionSpec(
        "enable_inplace",
        "bool",
        True,  # noqa: FBT003 - a value
        "Let results take over the memory of operands that are not needed any more.",
    ),
    OptionSpec(
        "fold_limit_bytes",
        "int",
        65536,
        "Bytes by which computing a constant at compile time may enlarge the archive. What would "
        "grow more is computed when the archive is loaded.",
    ),
    OptionSpec(
        "kahn_tie_breaker",
        "choice",
        "greedy",
        "Which of several ready ops the scheduler takes: greedy takes the one that adds the least "
        "live memory, fifo the one that became ready last (as in PopART, despite its name), random "
        "a pseudo-random one, always the same.",
        choices=("greedy", "fifo", "random"),
        popart="kahnTieBreaker",
    ),
    OptionSpec(
        "verify_ir",
        "bool",
        False,  # noqa: FBT003 - a value
        "Check the graph after every pass, and schedule and memory plan with independent checkers.",
    ),
    OptionSpec(
        "weights",
        "choice",
        "compressed",
        "How weights are stored: compressed makes a small archive; mmap stores them raw and "
        "page-aligned, so that they are mapped instead of read and processes share them.",
        choices=("compressed", "mmap"),
    ),
)


def describe_options(pass_names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every option as plain data, for listings and for machines."""
    return [
        {
            "name": spec.name,
            "type": spec.type,
            "default": spec.default,
            "choices": list(pass_names if spec.name == "disabled_passes" else spec.choices),
            "summary": spec.help.split(". ")[0].rstrip("."),
            "help": spec.help,
            "popart": spec.popart,
        }
        for spec in SCHEMA
    ]
