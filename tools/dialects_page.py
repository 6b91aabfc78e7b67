"""Print docs/dialects.md: the settings of other systems, and what becomes of them.

`make docs` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from popc.options.dialects.dialect import Dialect
from popc.options.dialects.known import DIALECTS
from popc.options.dialects.listing import describe_dialect

__all__ = ["dialects_page"]

_INTRODUCTION = """\
# Dialects

Made from the code by `make docs`.

Whoever configured another system for the IPU hands popc the settings as they are: a file \
(`popc compile model.onnx --options ipu_config.json`), a mapping (`popc.compile(model, \
options={...})`), single ones (`--set replication_factor=2`), or an object of a class that stands \
for the system's own: `popc.hosts.tensorflow.IPUConfig`, `popc.hosts.optimum.IPUConfig`, \
`popc.hosts.paddle.IpuStrategy`.

A table is recognised by keys that only one system has, or says `dialect = "optimum"` itself. It \
is translated before anything else sees it: options that follow from it behave like any others, \
and `--dump-options`, `--explain-options` and errors say which setting they follow from. popc's \
own options may stand in the same table. A setting that can have no effect is reported once, with \
the reason; one that would change results in a way that popc cannot is refused. Where two systems \
have different defaults, the table's own hold.

`popc options --dialect optimum` lists what is below.
"""


def dialects_page() -> str:
    """The page as Markdown."""
    return "\n".join([_INTRODUCTION, *(line for dialect in DIALECTS for line in _section(dialect))])


def _section(dialect: Dialect) -> Iterator[str]:
    yield f"## {dialect.title}: `{dialect.name}`\n"
    if dialect.implied_by:
        yield f"`{dialect.implied_by}` sets more without being asked; here it does, too.\n"
    yield "| setting | type | default | becomes |\n|---|---|---|---|"
    yield from map(_row, describe_dialect(dialect.name))
    yield ""


def _row(row: dict[str, Any]) -> str:
    kind = "one of " + ", ".join(row["choices"]) if row["choices"] else row["type"]
    default = row["default"]
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    cells = (f"`{row['key']}`", kind, shown, row["becomes"])
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    print(dialects_page(), end="")
