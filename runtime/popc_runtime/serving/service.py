"""Inference whatever the protocol: admission, time-outs, counts, logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from popc_runtime.errors import (
    NotServedError,
    OverloadedError,
    PopcError,
    RequestTooLargeError,
    RunTimeoutError,
)
from popc_runtime.format import Array, TensorSpec
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.control import Control
from popc_runtime.serving.logs import note
from popc_runtime.serving.metrics import Metrics
from popc_runtime.serving.repository import Repository
from popc_runtime.serving.runner import InferAnswer, Runner
from popc_runtime.serving.settings import ServeSettings
from popc_runtime.serving.tensors import GivenTensor, arrays_of, results_of
from popc_runtime.serving.traces import span

__all__ = ["InferRequest", "InferResult", "Service"]


@frozen
class InferRequest:
    """A request for inference.

    Attributes:
        version: "" for the latest.
        outputs: Those that are wanted; all if there are none.
        timeout: Seconds that the client allows; ``None`` if it does not say.
        headers: For traces.
        protocol: "http" or "grpc".
    """

    model: str
    version: str
    tensors: Sequence[GivenTensor]
    outputs: Sequence[str]
    timeout: float | None
    headers: Mapping[str, str]
    protocol: str
    id: str = ""


@frozen
class InferResult:
    """Results in the order in which they are wanted."""

    version: str
    outputs: Sequence[tuple[TensorSpec, Array]]


class Service:
    """The part that REST and gRPC have in common.

    Attributes:
        drains: Whether the server is about to end.
    """

    def __init__(
        self, settings: ServeSettings, repository: Repository, metrics: Metrics, control: Control
    ) -> None:
        self.settings = settings
        self.repository = repository
        self.metrics = metrics
        self.control = control
        self.drains = False
        self._requests = 0
        self._bytes = 0

    @property
    def pending(self) -> int:
        """The number of requests that are being answered."""
        return self._requests

    def is_ready(self) -> bool:
        """True if requests for all models are answered."""
        return not self.drains and self.repository.is_ready()

    @contextmanager
    def admitted(self, size: int) -> Iterator[None]:
        """A request of so many bytes is in memory during the block.

        Raises:
            RequestTooLargeError: it is too large at any time.
            OverloadedError: it is too large now, or there are too many.
        """
        most, together = self.settings.max_request_bytes, self.settings.max_pending_bytes
        if size > most:
            raise RequestTooLargeError(
                f"the request has {size:,} bytes, more than {most:,}",
                hint="send smaller batches, or start the server with a larger --max-request-bytes",
            )
        if self._bytes + size > together:
            raise OverloadedError(
                f"requests of {self._bytes:,} bytes are being answered already, at most "
                f"{together:,} together",
                hint="try again later; --max-pending-bytes allows more",
            )
        self._requests += 1
        self._bytes += size
        self.metrics.pending(self._requests, self._bytes)
        try:
            yield
        finally:
            self._requests -= 1
            self._bytes -= size
            self.metrics.pending(self._requests, self._bytes)

    async def infer(self, request: InferRequest) -> InferResult:
        """The results of a request.

        Raises:
            PopcError: it has none; see `failures`.
        """
        start = monotonic()
        facts = {"model": request.model, "version": request.version, "protocol": request.protocol}
        outcome = "internal"
        known = request.model if request.model in self.repository.names else ""
        try:
            with span("infer", request.headers, **facts) as later:
                result, answer = await self._infer(request)
                facts["version"] = result.version
                later |= {"version": result.version, "batch.samples": answer.samples}
                later["queue.seconds"] = answer.waited
            outcome = "ok"
            self.metrics.took(request.model, result.version, monotonic() - start, answer.waited)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except PopcError as error:
            outcome = error.code
            raise
        finally:  # names that clients invent do not become labels
            version = facts["version"] if outcome == "ok" else ""
            self.metrics.answered(known, version, request.protocol, outcome)
            if self.settings.log_requests:
                facts |= {
                    "id": request.id,
                    "outcome": outcome,
                    "seconds": f"{monotonic() - start:.6f}",
                }
                note("info", "request", **facts)
        return result

    async def _infer(self, request: InferRequest) -> tuple[InferResult, InferAnswer]:
        version, runner = self.repository.find(request.model, request.version)
        try:
            answer = await self._answer(request, runner)
        except NotServedError:  # it was unloaded meanwhile, perhaps for another one
            version, runner = self.repository.find(request.model, request.version)
            answer = await self._answer(request, runner)
        outputs = results_of(answer.results, runner.model.outputs, request.outputs)
        return InferResult(str(version), outputs), answer

    async def _answer(self, request: InferRequest, runner: Runner) -> InferAnswer:
        model = runner.model
        arrays = arrays_of(request.tensors, model.inputs, model.optional)
        timeout = min(request.timeout or self.settings.timeout, self.settings.timeout)
        pending = runner.submit(model.prepared(arrays), monotonic() + timeout)
        future = asyncio.wrap_future(pending.value[1])
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise RunTimeoutError(
                f"the request was given up after {timeout:g} s",
                hint="allow more time: --timeout, a deadline of gRPC, or the parameter timeout",
            ) from None
        finally:
            runner.forget(pending)

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Name, versions, inputs and outputs of a model; inputs and outputs are `TensorSpec`s.

        Raises:
            NotServedError: there is none.
        """
        number, runner = self.repository.find(name, version)
        return {
            "name": name,
            "versions": [str(number)]
            if version
            else list(map(str, self.repository.versions(name))),
            "platform": runner.model.platform,
            "inputs": runner.model.inputs,
            "outputs": runner.model.outputs,
        }
