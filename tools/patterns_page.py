"""Print docs/patterns.md: every pass and local rule, and PopART's patterns.

`make docs` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.dialects.popart_patterns import BUILT_IN, ELSEWHERE, PATTERNS
from popc.transforms import PIPELINE
from popc.transforms.base import Pass
from popc.transforms.rules import RULES

__all__ = ["patterns_page"]

_INTRODUCTION = """\
# Patterns

Made from the code by `make docs`.

What popc rewrites, it rewrites by name. The option `patterns` chooses a level; `pattern_switches` \
switches single names on or off; `disabled_passes` is a short way to switch off; and a node with \
the attribute `__exclude_patterns`, or an entry of `[[annotate]]` with `exclude_patterns`, is left \
alone by what it names, also as the neighbour of another node. `popc compile --explain-options` \
says what each switch has changed, and names those that have changed nothing.

```toml
patterns = "default"                  # no_patterns, minimal, default or all

[pattern_switches]
split_gathers = true
ExpandCast = false                    # PopART's name of expand_casts

[[annotate]]
nodes = "head*"
exclude_patterns = ["join_transposes", "fuse_epilogues"]
```

Results are the same with and without, bit for bit, unless the tables say otherwise or a pass \
changes the order of sums (recognition, folding into weights, epilogues). Rules of the level \
`fast_math` are on with `enable_fast_math`, whatever `patterns` says. In PopART the minimal \
level keeps what programs cannot do without; here nothing of that is a pattern.
"""


def patterns_page() -> str:
    """The page as Markdown."""
    parts = [
        _INTRODUCTION,
        "## Local rules\n",
        "| name | from level | what it does | results |\n|---|---|---|---|",
        *(f"| `{r.name}` | {r.level} | {r.does} | {r.results} |" for r in RULES),
        "\n`simplify` stands for all of them.\n",
        "## Passes\n",
        "| name | from level | ops may exclude it | what it does |\n|---|---|---|---|",
        *map(_pass_row, _passes()),
        "\nPasses that run at every level do without a level, but can be switched off.\n",
        "## PopART's patterns\n",
        "| pattern | here |\n|---|---|",
        *(f"| {name} | {here} |" for name, here in sorted(_popart())),
    ]
    return "\n".join(parts) + "\n"


def _passes() -> list[type[Pass]]:
    found = {stage.name: stage for phase in reversed(PIPELINE) for stage in reversed(phase.passes)}
    return [found[name] for name in sorted(found) if found[name].optional]


def _pass_row(stage: type[Pass]) -> str:
    summary = (stage.__doc__ or "").split("\n\n")[0].replace("\n    ", " ")
    excludable = "yes" if stage.excludable else "no"
    return f"| `{stage.name}` | {stage.level or 'all levels'} | {excludable} | {summary} |"


def _popart() -> Iterator[tuple[str, str]]:
    for name, ours in PATTERNS.items():
        yield name, ", ".join(f"`{pattern}`" for pattern in ours)
    for name, reason in (*BUILT_IN.items(), *ELSEWHERE.items()):
        yield name, f"built in: {reason}" if name in BUILT_IN else reason


if __name__ == "__main__":
    print(patterns_page(), end="")
