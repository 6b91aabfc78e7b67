"""popc targets."""

from __future__ import annotations

from typing import Any

import click

from popc.cli.report import Report, format_table

__all__ = ["command"]


@click.command("targets")
@click.argument("name", required=False)
@click.option(
    "--show", metavar="NAME", help="Print the TOML file of a target, to start your own from."
)
def command(*, name: str | None, show: str | None) -> Report:
    """List the targets, or describe NAME: a target, or a TOML file that describes one.

    \b
    popc targets
    popc targets bow
    popc targets --show ipu2 > mine.toml
    """
    from popc.target import ALIASES, PRESETS, find_target, preset_text

    if show is not None:
        target = find_target(show)
        known = ALIASES.get(show.lower(), show.lower())
        text = preset_text(known) if known in PRESETS else ""
        return Report("targets", {"targets": [target.to_dict()]}, text.rstrip())
    chosen = [find_target(preset) for preset in ((name,) if name else PRESETS)]
    rows = [target.to_dict() for target in chosen]
    names = {
        target.name: [key for key, value in ALIASES.items() if value == target.name]
        for target in chosen
    }
    for row in rows:
        row["aliases"] = names[row["name"]]
        row["peak_tflops"] = _peaks(row)
    text = _describe(rows[0]) if name else _list(rows)
    return Report("targets", {"targets": rows}, text)


def _peaks(row: dict[str, Any]) -> dict[str, float]:
    """Tera operations per second of a chip, by types of operands and results."""
    conv, tile = row["conv"], row["tile"]
    macs = {
        "fp8_fp16": conv["fp8_in_fp16_out_units"] * 8,
        "fp16_fp16": conv["fp16_in_fp16_out_units"] * 4,
        "fp16_fp32": conv["fp16_in_fp32_out_units"] * 4,
        "fp32_fp32": conv["fp32_in_fp32_out_units"],
    }
    rate = 2 * tile["count"] * tile["clock_hz"] / 1e12
    return {key: round(count * rate, 1) for key, count in macs.items() if count}


def _list(rows: list[dict[str, Any]]) -> str:
    header = ["target", "tiles", "memory per tile", "clock", "fp16 peak", "IPUs", "what it is"]
    table = [
        [
            row["name"],
            f"{row['tile']['count']:,}",
            f"{row['tile']['memory_bytes']:,} bytes",
            f"{row['tile']['clock_hz'] / 1e9:.2f} GHz",
            f"{row['peak_tflops']['fp16_fp16']:,.1f} TFLOP/s",
            f"1 to {row['links']['max_ipus']}" if row["links"]["max_ipus"] > 1 else "1",
            row["description"] + (f" ({', '.join(row['aliases'])})" if row["aliases"] else ""),
        ]
        for row in rows
    ]
    return format_table([header, *table], right=(1, 2, 3, 4))


def _describe(row: dict[str, Any]) -> str:
    facts = [["target", row["name"]], ["description", row["description"]]]
    for part in ("tile", "conv", "exchange", "links", "host"):
        facts += [[f"{part}.{key}", _text(value)] for key, value in row[part].items()]
    facts += [[f"peak {key}", f"{value:,.1f} TFLOP/s"] for key, value in row["peak_tflops"].items()]
    return format_table(facts)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
