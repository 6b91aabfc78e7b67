"""popc feed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from popc.cli.console import Console
from popc.cli.engine_options import feed_key_option
from popc.cli.files import output_option
from popc.cli.report import Report, counted, format_bytes, format_seconds, format_table

if TYPE_CHECKING:
    from popc.inputs.arrays import FeedKey

__all__ = ["command"]


@click.group("feed")
def command() -> None:
    """Write data sets into files for streams, and measure how fast they give samples.

    \b
    popc feed write my_data:train -o train.bin --count 10000
    popc feed bench my_data:train --elements 1000

    A data set is MODULE:NAME, an iterable of Python or a function that returns one: a data set of
    TensorFlow or PyTorch, a generator; or a .npy file with samples along its first axis.
    """


@command.command("write")
@click.argument("source", metavar="MODULE:NAME|FILE")
@output_option(
    "The file to write: .bin or .raw (raw elements) or .npy. Elements of several parts make "
    "several files, as in x.0.bin and x.1.bin."
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Write N elements.")
@feed_key_option(
    "--key", "Seal what is written with the key in FILE, so that who reads it notices changes."
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.pass_obj
def _write(
    console: Console,
    *,
    source: str,
    output: Path,
    count: int | None,
    key: FeedKey | None,
    force: bool,
) -> Report:
    """Write the elements of a data set into files that `popc run --input` and sessions read.

    \b
    popc feed write my_data:train -o train.bin --count 10000
    popc feed write images.npy -o images.bin --key feed.key@7
    """
    from popc.inputs.feeds import find_dataset, write_feed

    files = write_feed(
        find_dataset(source)(),
        output,
        count,
        seal=key,
        force=force,
        on_count=console.on_count("write"),
    )
    rows = [
        {
            "file": str(file.path),
            "part": file.part,
            "dtype": file.dtype,
            "shape": list(file.shape),
            "samples": file.count,
            "bytes": file.path.stat().st_size,
            "sealed": key is not None,
        }
        for file in files
    ]
    text = "\n".join(
        f"{file.path} ({counted(file.count, 'sample')} of {file.dtype}{list(file.shape)}"
        f"{f', {file.part}' if file.part else ''}{', sealed' if key else ''})"
        for file in files
    )
    return Report("feed-write", {"files": rows}, text)


@command.command("bench")
@click.argument("source", metavar="MODULE:NAME|FILE")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--elements",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many elements an epoch takes; a data set that ends begins anew.",
)
@click.option("--no-copy", is_flag=True, help="Do not copy elements, as a device would.")
@click.pass_obj
def _bench(console: Console, *, source: str, epochs: int, elements: int, no_copy: bool) -> Report:
    """Measure how many elements and bytes a second a data set gives, and how long each takes.

    \b
    popc feed bench my_data:train --elements 1000
    popc --format json feed bench images.npy
    """
    from popc.inputs.feeds import find_dataset, measure_epochs

    found = list(
        measure_epochs(
            find_dataset(source),
            epochs,
            elements,
            copies=not no_copy,
            on_count=console.on_count("bench"),
        )
    )
    header = ["epoch", "elements", "bytes", "time", "elements/s", "GB/s", "p50", "p99", "max"]
    rows = [
        [
            str(number),
            f"{epoch.elements_processed:,}",
            format_bytes(epoch.total_bytes_processed),
            format_seconds(epoch.time_elapsed),
            f"{epoch.elements_per_second:,.0f}",
            f"{epoch.bandwidth:.3f}",
            *(format_seconds(epoch.latency_seconds[word]) for word in ("p50", "p99", "max")),
        ]
        for number, epoch in enumerate(found, 1)
    ]
    text = format_table([header, *rows], right=tuple(range(len(header))))
    return Report("feed-bench", {"epochs": [epoch.to_dict() for epoch in found]}, text)
