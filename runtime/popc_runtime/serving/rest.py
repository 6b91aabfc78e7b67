"""The Open Inference Protocol over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

from popc_runtime.errors import NotServedError, PopcError, RunTimeoutError, UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.bodies import (
    HEADER_LENGTH,
    InferBody,
    index_request,
    infer_request,
    infer_response,
)
from popc_runtime.serving.failures import http_status
from popc_runtime.serving.logs import note
from popc_runtime.serving.server_facts import EXTENSIONS, SERVER, server_version, tensor_facts
from popc_runtime.serving.service import Service

__all__ = ["RestApp"]

_Scope: TypeAlias = "Mapping[str, Any]"
_Receive: TypeAlias = "Callable[[], Awaitable[Mapping[str, Any]]]"
_Send: TypeAlias = "Callable[[dict[str, Any]], Awaitable[None]]"

_JSON: Final = ("content-type", "application/json")
_RETRY: Final = ("retry-after", "1")
_DIGITS: Final = 18  # of the size of a body


@frozen
class _Reply:
    """A response."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = (_JSON,)


class RestApp:
    """Answers requests; every error is ``{"error": ...}``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        try:
            reply = await self._reply(scope, receive)
        except PopcError as error:
            status = http_status(error)
            retry = (_RETRY,) if status == 503 else ()
            reply = _failure(status, str(error), retry)
        except Exception as error:  # noqa: BLE001 - the client gets an answer, the log the trace
            note("error", "internal error", path=scope["path"], error=repr(error))
            reply = _failure(500, f"internal error: {type(error).__name__}")
        headers = [*reply.headers, ("content-length", str(len(reply.body)))]
        coded = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": coded})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: _Scope, receive: _Receive) -> _Reply:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        parts = [part for part in scope["path"].split("/") if part]
        route = " ".join([scope["method"], *parts])
        fixed = _FIXED.get(route)
        if fixed is not None:
            return fixed(self._service)
        match [scope["method"], *parts]:
            case ["POST", "v2", "repository", "index"]:
                return await self._index(headers, receive)
            case ["POST", "v2", "repository", "models", name, ("load" | "unload") as action]:
                await self._service.control.change(action, name)
                return _Reply(200, b"{}")
            case [method, "v2", "models", name, *rest]:
                return await self._model(method, name, rest, headers, receive)
        return _unknown(scope)

    async def _model(
        self,
        method: str,
        name: str,
        rest: list[str],
        headers: Mapping[str, str],
        receive: _Receive,
    ) -> _Reply:
        """Metadata, readiness and inference of a model."""
        version = ""
        if len(rest) >= 2 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        match [method, *rest]:
            case ["GET"]:
                facts = self._service.metadata(name, version)
                tensors = {
                    what: [*map(tensor_facts, facts[what])] for what in ("inputs", "outputs")
                }
                return _document(facts | tensors)
            case ["GET", "ready"]:
                if self._service.drains:
                    raise NotServedError("the server is about to end")
                self._service.repository.find(name, version)
                return _document({"name": name, "ready": True})
            case ["POST", "infer"]:
                return await self._infer(name, version, headers, receive)
        return _failure(404, f"there is no {method} {'/'.join(rest)!r:.80} of models")

    async def _infer(
        self, name: str, version: str, headers: Mapping[str, str], receive: _Receive
    ) -> _Reply:
        start = monotonic()
        size = _length(headers)
        with self._service.admitted(size):
            body = InferBody(await self._read(receive, size), headers.get(HEADER_LENGTH, ""))
            request, form = infer_request(body, name, version, headers)
            result = await self._service.infer(request)
            data, json_size = infer_response(name, request.id, result, form)
        timing = ("server-timing", f"total;dur={(monotonic() - start) * 1e3:.3f}")
        if json_size == len(data):
            return _Reply(200, data, (_JSON, timing))
        kind = ("content-type", "application/octet-stream")
        return _Reply(200, data, (kind, (HEADER_LENGTH, str(json_size)), timing))

    async def _read(self, receive: _Receive, size: int) -> bytes:
        """The body: who sends it too slowly keeps the room of others.

        Raises:
            UsageError: the client is gone.
            RunTimeoutError: it did not come in the time that a request has.
        """
        allowed = self._service.settings.timeout
        try:
            async with asyncio.timeout(allowed):
                return await _read(receive, size)
        except TimeoutError:
            raise RunTimeoutError(
                f"the body of {size:,} bytes did not come within {allowed:g} s",
                hint="--timeout allows more",
            ) from None

    async def _index(self, headers: Mapping[str, str], receive: _Receive) -> _Reply:
        size = _length(headers)
        with self._service.admitted(size):
            only_ready = index_request(await self._read(receive, size))
        rows = [
            {
                "name": state.name,
                "version": str(state.version),
                "state": "READY" if state.is_ready else "UNAVAILABLE",
                "reason": state.reason,
            }
            for state in self._service.repository.index()
            if state.is_ready or not only_ready
        ]
        return _document(rows)


def _length(headers: Mapping[str, str]) -> int:
    """The size of a body.

    Raises:
        UsageError: it is not told, or the body is compressed.
    """
    coding = headers.get("content-encoding", "identity")
    if coding != "identity":
        raise UsageError(f"the body is compressed ({coding:.20})", hint="send it as it is")
    text = headers.get("content-length", "0" if "transfer-encoding" not in headers else "")
    if not text.isdecimal() or len(text) > _DIGITS:
        raise UsageError("the request does not tell its Content-Length", hint="send that header")
    return int(text)


async def _read(receive: _Receive, size: int) -> bytes:
    """The body.

    Raises:
        UsageError: the client is gone.
    """
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise UsageError(f"the client is gone after {len(found):,} of {size:,} bytes")
        found += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(found)


def _document(data: Any) -> _Reply:
    return _Reply(200, json.dumps(data).encode())


def _failure(status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> _Reply:
    return _Reply(status, json.dumps({"error": message}).encode(), (_JSON, *headers))


def _unknown(scope: _Scope) -> _Reply:
    return _failure(
        404,
        f"there is no {scope['method']} {scope['path']:.200}; inference is POST "
        "/v2/models/NAME/infer, see docs/serving.md",
    )


def _ready(service: Service) -> _Reply:
    ready = service.is_ready()
    why = "the server is about to end" if service.drains else "not all models are loaded"
    return _document({"ready": True}) if ready else _failure(503, why, (_RETRY,))


def _metrics(service: Service) -> _Reply:
    kind = ("content-type", "text/plain; version=0.0.4; charset=utf-8")
    return _Reply(200, service.metrics.text(), (kind,))


def _about(service: Service) -> _Reply:
    del service
    return _document({"name": SERVER, "version": server_version(), "extensions": EXTENSIONS})


_FIXED: Final[Mapping[str, Callable[[Service], _Reply]]] = {
    "GET v2": _about,
    "GET v2 health live": lambda service: _document({"live": bool(service)}),
    "GET v2 health ready": _ready,
    "GET metrics": _metrics,
}
