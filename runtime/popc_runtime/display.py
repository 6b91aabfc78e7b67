"""Archives and executables as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable

from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from popc_runtime.format import Manifest, TensorSpec

__all__ = ["manifest_html", "table_html"]


def manifest_html(what: str, manifest: Manifest) -> str:
    """Inputs, outputs and memory of a program, as a fragment of HTML."""
    rows = [_row("input", spec) for spec in manifest.inputs]
    rows += [_row("output", spec) for spec in manifest.outputs]
    rows += [
        (name.removesuffix("_bytes"), f"{size:,} bytes", "")
        for name, size in sorted(manifest.memory.items())
        if size and name != "naive_bytes"
    ]
    title = f"{what}, compiled by popc {manifest.compiler_version}"
    return table_html(title, ("", "", "type"), rows)


def table_html(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with a caption; all texts are escaped."""
    from html import escape  # notebooks alone need it, and it has a table of entities

    lines = [f"<table><caption>{escape(title)}</caption>"]
    lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
    lines += [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    return "\n".join([*lines, "</table>"])


def _row(kind: str, spec: TensorSpec) -> tuple[str, str, str]:
    return kind, spec.name, f"{spec.dtype}[{','.join(map(str, spec.shape))}]"
