"""The documents of `popc feed`."""

from __future__ import annotations

from typing import Final

from popc.cli.schema_words import COUNT, NUMBER, TEXT, TRUTH, Schema, list_of, record

__all__ = ["FEEDS"]

FEEDS: Final[dict[str, Schema]] = {
    "feed-bench": record(
        {
            "epochs": list_of(
                record(
                    {
                        "elements_processed": COUNT,
                        "total_bytes_processed": COUNT,
                        "time_elapsed": NUMBER,
                        "elements_per_second": NUMBER,
                        "bandwidth": NUMBER,
                        "latency_seconds": record(
                            {"p50": NUMBER, "p90": NUMBER, "p99": NUMBER, "max": NUMBER}
                        ),
                    }
                )
            )
        }
    ),
    "feed-write": record(
        {
            "files": list_of(
                record(
                    {
                        "file": TEXT,
                        "part": TEXT,
                        "dtype": TEXT,
                        "shape": list_of(COUNT),
                        "samples": COUNT,
                        "bytes": COUNT,
                        "sealed": TRUTH,
                    }
                )
            )
        }
    ),
}
