"""popc inspect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from popc.cli.model_options import file_argument
from popc.cli.report import Report, counted, format_bytes, format_table

__all__ = ["command"]

_SECTIONS = (
    *("summary", "programs", "streams", "variables", "options", "blobs", "program"),
    *("weights", "nodes"),
)


@click.command("inspect")
@file_argument
@click.option(
    "--section",
    type=click.Choice(_SECTIONS),
    default="summary",
    show_default=True,
    help="Section to show; weights and nodes are for models, the others for archives.",
)
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Show every row of long tables, and options with their defaults.",
)
def command(*, file: Path, section: str, show_all: bool) -> Report:
    """Show what is in FILE, an ONNX model or an archive.

    \b
    popc inspect model.onnx
    popc inspect model.popx --section program
    """
    from popc_runtime.format import is_archive

    if is_archive(file):
        return _inspect_archive(file, section, show_all=show_all)
    return _inspect_model(file, section, limit=None if show_all else 20)


# -- archives --------------------------------------------------------------------------------------


def _inspect_archive(path: Path, section: str, *, show_all: bool) -> Report:
    from popc_runtime.errors import UsageError
    from popc_runtime.format import ArchiveFile, decode_program, format_program

    with ArchiveFile.open(path) as archive:
        data = {
            "kind": "archive",
            "bytes": path.stat().st_size,
            **archive.manifest.to_dict(),
            "blobs": [_blob_row(blob) for blob in archive.blobs.values()],
        }
        if section == "program":
            text = format_program(decode_program(archive.read("program"))).rstrip()
            return Report("inspect", {**data, "program": text}, text)
    if section == "options":
        return Report("inspect", data, _archive_options(data, show_all=show_all))
    if section not in _ARCHIVE_TEXTS:
        raise UsageError(
            f"an archive has no ONNX {section}", hint="--section program shows its program"
        )
    return Report("inspect", data, _ARCHIVE_TEXTS[section](data))


def _blob_row(blob: Any) -> dict[str, Any]:
    return {
        "name": blob.name,
        "kind": blob.kind,
        "codec": blob.codec.value,
        "stored_bytes": blob.stored_bytes,
        "raw_bytes": blob.raw_bytes,
        "sha256": blob.sha256.hex(),
    }


def _archive_summary(data: dict[str, Any]) -> str:
    version = ".".join(map(str, data["format_version"]))
    rows = [
        ["archive", f"{format_bytes(data['bytes'])}, format {version}"],
        ["built by", f"popc {data['compiler_version']}"],
        ["model", f"sha256 {data['model_sha256']}"],
        *([key, value] for key, value in sorted(data["provenance"].items())),
        *(["input", _type_of(spec)] for spec in data["inputs"]),
        *(["output", _type_of(spec)] for spec in data["outputs"]),
        ["programs", ", ".join(data["programs"])],
        *(
            [f"  {row['name']}", ", ".join(map(_type_of, row["inputs"]))]
            for row in data["variants"]
        ),
        *(["  other sizes", _fit_text(row)] for row in data["fits"]),
        *([["replicas", str(data["replicas"])]] if data["replicas"] > 1 else []),
        *(["needs", f"the operator {name}"] for name in data["operators"]),
        *(["calls", _call_text(row)] for row in data["host_calls"]),
        *_training_rows(data),
        *([key.replace("_", " "), format_bytes(count)] for key, count in data["memory"].items()),
    ]
    changed = [row for row in data["options"] if row["origin"] != "default"]
    rows += [
        ["option", f"{row['name']} = {row['value']} (from {row['origin']})"] for row in changed
    ]
    return format_table(rows)


def _call_text(row: dict[str, Any]) -> str:
    """A function of the host, with its types."""
    from popc_runtime.format import HostCallSpec

    return str(HostCallSpec(row["name"], tuple(row["inputs"]), tuple(row["outputs"])))


def _fit_text(row: dict[str, Any]) -> str:
    """The treatment of inputs of other sizes."""
    told = {"fill": "filled up", "pad": "filled up", "split": "split"}
    fills = ", ".join(f"{name} with {number}" for name, number in row["fills"].items())
    text = f"{row['dimension']} is {' or '.join(told[mode] for mode in row['modes'])}"
    return f"{text}: {fills}" if fills else text


def _archive_programs(data: dict[str, Any]) -> str:
    header = ["program", "takes", "returns", "arena"]
    rows = [
        [
            row["name"],
            ", ".join(map(_type_of, row["inputs"])),
            ", ".join(map(_type_of, row["outputs"])),
            format_bytes(row["memory"].get("arena_bytes", 0)),
        ]
        for row in ({**data, "name": "main"}, *data["variants"])
    ]
    return format_table([header, *rows], right=(3,))


def _training_rows(data: dict[str, Any]) -> list[list[str]]:
    """The trained weights and the optimizer; nothing for a program whose weights are constant."""
    roles = Counter(row["role"] for row in data["variables"])
    rows = [["variables", ", ".join(f"{count} of role {role}" for role, count in roles.items())]]
    training = data["training"]
    if training is not None:
        rows.append(["trains by", f"{training['optimizer']}, to minimise {training['loss']}"])
        rows += [
            ["  " + row["name"].replace("_", " "), _number_text(row)]
            for row in training["hyper_parameters"]
        ]
        rows += [["  clip norm", text] for text in training["clip_norms"]]
    return rows if roles else []


def _number_text(row: dict[str, Any]) -> str:
    group = "" if row["group"] == "default" else f" for {row['group']}"
    return f"{row['value']:g}{group}, {'changeable' if row['variable'] else 'constant'}"


def _archive_variables(data: dict[str, Any]) -> str:
    if not data["variables"]:
        return "no variables: the weights are constants"
    rows = [
        [row["name"], _type_of(row).partition(": ")[2], row["role"], _holders(row)]
        for row in data["variables"]
    ]
    if not any(held for *_, held in rows):
        return format_table([["variable", "type", "role"], *(row[:-1] for row in rows)])
    return format_table([["variable", "type", "role", "values of replicas"], *rows])


def _holders(row: dict[str, Any]) -> str:
    """The values of a variable that each replica holds; "" if all hold the same."""
    if row["whole"]:
        return f"parts of {row['dtype']}[{','.join(map(str, row['whole']))}]"
    return ", ".join(map(str, row["rows"]))


def _type_of(spec: dict[str, Any]) -> str:
    return f"{spec['name']}: {spec['dtype']}[{','.join(map(str, spec['shape']))}]"


def _archive_streams(data: dict[str, Any]) -> str:
    header = ["stream", "direction", "sample", "samples per step", "returns"]
    return format_table(
        [
            header,
            *(
                [
                    row["name"],
                    row["direction"],
                    f"{row['dtype']}[{','.join(map(str, row['shape']))}]",
                    str(row["samples_per_step"] or 1),
                    row["return_type"] or "-",
                ]
                for row in data["streams"]
            ),
        ]
    )


def _archive_options(data: dict[str, Any], *, show_all: bool) -> str:
    """The options that were set, or all."""
    every = data["options"]
    shown = [row for row in every if show_all or row["origin"] != "default"]
    lines = [[row["name"], "=", str(row["value"]), f"# from {row['origin']}"] for row in shown]
    hidden = len(every) - len(shown)
    rest = f"{counted(hidden, 'option')} with the default value: --all shows them"
    return "\n".join([*([format_table(lines)] if lines else []), *([rest] if hidden else [])])


def _archive_blobs(data: dict[str, Any]) -> str:
    header = ["blob", "kind", "codec", "stored", "raw", "sha256"]
    rows = [
        [
            row["name"],
            row["kind"],
            row["codec"],
            format_bytes(row["stored_bytes"]),
            format_bytes(row["raw_bytes"]),
            row["sha256"][:16],
        ]
        for row in data["blobs"]
    ]
    return format_table([header, *rows], right=(3, 4))


_ARCHIVE_TEXTS = {
    "summary": _archive_summary,
    "programs": _archive_programs,
    "streams": _archive_streams,
    "variables": _archive_variables,
    "blobs": _archive_blobs,
}


# -- models ----------------------------------------------------------------------------------------


def _inspect_model(path: Path, section: str, limit: int | None) -> Report:
    from popc.frontend import describe_model, load_model
    from popc_runtime.errors import UsageError

    if section not in ("summary", "nodes", "weights"):
        raise UsageError(
            f"a model has no {section}", hint="compile it first, then inspect the archive"
        )
    facts = describe_model(load_model(path))
    data: dict[str, Any] = {"kind": "model", "bytes": path.stat().st_size, **facts}
    if section in ("nodes", "weights"):
        return Report("inspect", data, "\n".join(facts[section]))
    return Report("inspect", data, _model_summary(data, limit))


def _model_summary(data: dict[str, Any], limit: int | None) -> str:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in data["opsets"])
    ops = sorted(data["op_counts"].items(), key=lambda item: (-item[1], item[0]))
    shown = ops[:limit]
    rows = [
        ["model", format_bytes(data["bytes"])],
        ["producer", data["producer"] or "-"],
        ["IR version", str(data["ir_version"])],
        ["opsets", opsets],
        *(["input", text] for text in data["inputs"]),
        *(["output", text] for text in data["outputs"]),
        ["weights", f"{data['weight_count']:,} tensors, {format_bytes(data['weight_bytes'])}"],
        ["nodes", f"{sum(count for _, count in ops):,}"],
        *([f"  {op}", f"{count:,}"] for op, count in shown),
    ]
    if len(ops) > len(shown):
        rows.append([f"  ... {len(ops) - len(shown)} more", "(--all)"])
    return format_table(rows)
