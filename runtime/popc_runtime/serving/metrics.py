"""Counts and times for Prometheus, of all workers together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["DIRECTORY", "Metrics"]

# Where the library keeps the numbers of several processes; it looks when it is imported.
DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SAMPLES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL: Final = ("model", "version")


class Metrics:
    """The numbers of this process; `text` adds those of the others."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "popc_requests",
            "Requests that were answered, by the code of their error, or ok.",
            (*_MODEL, "protocol", "outcome"),
            registry=self._registry,
        )
        self._seconds = self._histogram(
            "popc_request_seconds", "Time from a whole request to its results."
        )
        self._waited = self._histogram("popc_queue_seconds", "Part of that in the queue.")
        self._ran = self._histogram("popc_run_seconds", "Time of a run.")
        self._samples = self._histogram(
            "popc_batch_samples", "Samples of a run, of all its requests.", _SAMPLES
        )
        self._pending = self._gauge("popc_pending_requests", "Requests that are being answered.")
        self._bytes = self._gauge("popc_pending_bytes", "Bytes of these requests.")

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(name, meaning, _MODEL, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, multiprocess_mode="livesum", registry=self._registry)

    def answered(self, model: str, version: str, protocol: str, outcome: str) -> None:
        """A request has its answer."""
        self._requests.labels(model, version, protocol, outcome).inc()

    def took(self, model: str, version: str, seconds: float, waited: float) -> None:
        """A request has its results, after so many seconds."""
        self._seconds.labels(model, version).observe(seconds)
        self._waited.labels(model, version).observe(waited)

    def ran(self, model: str, version: str, samples: int, seconds: float) -> None:
        """A run has ended."""
        self._ran.labels(model, version).observe(seconds)
        self._samples.labels(model, version).observe(samples)

    def pending(self, requests: int, size: int) -> None:
        """So many requests, of so many bytes together, are being answered."""
        self._pending.set(requests)
        self._bytes.set(size)

    def text(self) -> bytes:
        """All numbers, as Prometheus reads them."""
        if DIRECTORY not in os.environ:
            return bytes(generate_latest(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return bytes(generate_latest(together))
