"""popc report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from popc.cli.console import Console
from popc.cli.engine_options import program_option
from popc.cli.files import write_text
from popc.cli.model_options import ModelSettings, file_argument, model_options, train_option
from popc.cli.report import Report
from popc_runtime.errors import ResourceError

if TYPE_CHECKING:
    from popc.reporting import Profile

__all__ = ["command"]

_SECTIONS: Final[tuple[str, ...]] = ("summary", "graph", "execution", "memory")
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.command("report")
@file_argument
@click.option("--html", type=_FILE, metavar="FILE", help="Write all of it as one HTML page.")
@click.option(
    "--json", "json_", type=_FILE, metavar="FILE", help="Write the sections as JSON, complete."
)
@click.option("--text", is_flag=True, help="Print the sections even if files are written.")
@click.option(
    "--section",
    "sections",
    type=click.Choice(_SECTIONS),
    multiple=True,
    help="Section to print or write as JSON; repeatable; all by default.",
)
@click.option("--all", "show_all", is_flag=True, help="Print every op, step and tensor.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@program_option
@model_options
@train_option("For a model: report on a training step; this file names loss and optimizer.")
@click.pass_obj
def command(
    console: Console,
    *,
    file: Path,
    html: Path | None,
    json_: Path | None,
    text: bool,
    sections: tuple[str, ...],
    show_all: bool,
    force: bool,
    program: str,
    settings: ModelSettings,
    train: Path | None,
) -> Report:
    """Report on FILE, an archive or a model: graph, execution and memory on the target.

    An archive must have been compiled with the option cost_report.  A model is compiled first;
    it takes the options of `popc compile`, and no archive is written.

    \b
    popc report model.popx
    popc report model.popx --html report.html
    popc report model.onnx --dim batch=16 --set target=bow --section memory
    """
    from popc.cli.profiles import load_profiles
    from popc.cli.report_text import sections_text
    from popc.reporting import report_data

    targets = [path for path in (html, json_) if path is not None]
    _refuse_existing(targets, force=force)
    (profile,) = load_profiles((file,), settings, train, console, program)
    chosen = tuple(name for name in _SECTIONS if name in (sections or _SECTIONS))
    data = report_data(profile, chosen, full=show_all)
    data["programs"] = ["main", *(variant.name for variant in profile.manifest.variants)]
    written = _write(profile, chosen, html, json_)
    if targets:
        data["files"] = written
    lines = [f"{path} ({_size(path)})" for path in targets] if not console.quiet else []
    if text or not targets:
        shown = {name: data[name] for name in chosen}
        lines.append(sections_text(shown, show_all=show_all))
    if len(data["programs"]) > 1:
        lines.append(f"this is of main; --program shows {', '.join(data['programs'][1:])}")
    return Report("report", data, "\n".join(lines))


def _refuse_existing(paths: list[Path], *, force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise ResourceError(
                f"{path} exists already", subject=str(path), hint="--force replaces it"
            )


def _write(
    profile: Profile, sections: tuple[str, ...], html: Path | None, json_: Path | None
) -> list[dict[str, Any]]:
    """Write what is wanted; all of it is made before the first file is written."""
    from popc.reporting import render_page, report_data

    contents: dict[Path, str] = {}
    if html is not None:
        contents[html] = render_page(profile)
    if json_ is not None:
        document = {"schema": "popc.report/1", **report_data(profile, sections, full=True)}
        contents[json_] = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    for path, content in contents.items():
        write_text(path, content)
    return [{"file": path.name, "bytes": path.stat().st_size} for path in contents]


def _size(path: Path) -> str:
    from popc.cli.report import format_bytes

    return format_bytes(path.stat().st_size)
