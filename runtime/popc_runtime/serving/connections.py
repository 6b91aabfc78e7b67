"""Connections of HTTP, with bounds for what comes before a request is known."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedHttp"]

_HEAD_BYTES: Final = 64 << 10
_HEAD_SECONDS: Final = 30.0


class BoundedHttp(HttpToolsProtocol):  # type: ignore[misc]
    """Refuses heads of requests that are too long, and closes connections that bring none."""

    _seen = 0  # bytes of a head that is not complete
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first request; see `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._closing is None or self.transport.is_closing():
            return
        self._seen += len(data)
        if self._seen > _HEAD_BYTES:
            self.send_400_response(f"The head of a request has more than {_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """A head begins: see `HttpToolsProtocol`."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """A head has ended: see `HttpToolsProtocol`."""
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        if self._closing is None:
            self._seen = 0
            self._closing = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response(f"No request has come within {_HEAD_SECONDS:g} seconds.")
