"""Print docs/options.md: every option, from the schema.

`make docs` writes it.
"""

from __future__ import annotations

import re
from typing import Final

from popc.options import describe_options
from popc.transforms import optional_passes

__all__ = ["options_page"]

_LONGEST: Final = 600  # characters of a paragraph: more is hard to read

_INTRODUCTION = (
    "# Options\n\n"
    "Made from the schema by `make docs`; `popc options KEY` explains one of them. Set them with "
    "`--set KEY=VALUE`, as `POPC_KEY` in the environment, in a TOML or JSON file (`--options "
    "FILE`), or in Python (`options={...}`), in this order of precedence. PopART's names are "
    "understood too.\n"
)


def options_page() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION]
    for row in describe_options(optional_passes()):
        facts = [f"default `{row['default']}`" if row["default"] != () else "default: none"]
        if row["choices"] and row["name"] != "disabled_passes":
            facts.append("one of " + ", ".join(f"`{choice}`" for choice in row["choices"]))
        if row["popart"]:
            facts.append(f"in PopART `{row['popart']}`")
        parts.append(f"## `{row['name']}`\n\n{'; '.join(facts)}.\n\n{_paragraphs(row['help'])}\n")
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    """``text``, divided between sentences where it is too long for one paragraph."""
    paragraphs = [""]
    for sentence in re.split(r"(?<=[\w)]\.) (?=[A-Z])", text):
        longer = f"{paragraphs[-1]} {sentence}".strip()
        if len(longer) <= _LONGEST or not paragraphs[-1]:
            paragraphs[-1] = longer
        else:
            paragraphs.append(sentence)
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    print(options_page(), end="")
