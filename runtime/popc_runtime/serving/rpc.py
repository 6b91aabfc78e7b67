"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from grpc import aio
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

from popc_runtime.errors import NotServedError, PopcError, UsageError
from popc_runtime.serving.failures import grpc_status
from popc_runtime.serving.logs import note
from popc_runtime.serving.server_facts import EXTENSIONS, SERVER, server_version, tensor_facts
from popc_runtime.serving.service import InferRequest, Service
from popc_runtime.serving.tensors import GivenTensor, as_bytes

__all__ = ["rpc_server"]

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}

_OTHERS: Final = 64  # calls beside those that queues have room for: about health, or to be refused


def rpc_server(service: Service) -> Any:
    """A server that is not started yet, and has no port."""
    most = service.settings.max_request_bytes
    models = len(service.repository.names)
    server = aio.server(
        maximum_concurrent_rpcs=2 * service.settings.max_queue * models + _OTHERS,
        options=[
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 1),
        ],
    )
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Calls(service), server)
    return server


async def _answered(context: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    """The answer of ``call``; an error of ours becomes a status."""
    try:
        return await call()
    except PopcError as error:
        code = getattr(grpc.StatusCode, grpc_status(error))
        message = str(error)
    except Exception as error:  # noqa: BLE001 - the client gets an answer, the log the trace
        note("error", "internal error", error=repr(error))
        code, message = grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"
    return await context.abort(code, message)  # which raises


class _Calls(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A method for each call; names are the protocol's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        """True: the process runs."""
        del request, context
        return messages.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """True if all models are loaded."""
        del request, context
        return messages.ServerReadyResponse(ready=self._service.is_ready())

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Name, version and extensions."""
        del request, context
        return messages.ServerMetadataResponse(
            name=SERVER, version=server_version(), extensions=EXTENSIONS
        )

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """True if a model is loaded."""
        del context
        try:
            self._service.repository.find(request.name, request.version)
        except NotServedError:
            return messages.ModelReadyResponse(ready=False)
        return messages.ModelReadyResponse(ready=not self._service.drains)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Inputs and outputs of a model."""

        async def call() -> Any:
            facts = self._service.metadata(request.name, request.version)
            kind = messages.ModelMetadataResponse.TensorMetadata
            tensors = {
                what: [kind(**tensor_facts(spec)) for spec in facts[what]]
                for what in ("inputs", "outputs")
            }
            return messages.ModelMetadataResponse(**(facts | tensors))

        return await _answered(context, call)

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        """All models, loaded or not."""
        del context
        kind = messages.RepositoryIndexResponse.ModelIndex
        rows = [
            kind(
                name=state.name,
                version=str(state.version),
                state="READY" if state.is_ready else "UNAVAILABLE",
                reason=state.reason,
            )
            for state in self._service.repository.index()
            if state.is_ready or not request.ready
        ]
        return messages.RepositoryIndexResponse(models=rows)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Load a model from its file."""

        async def call() -> Any:
            await self._service.control.change("load", request.model_name)
            return messages.RepositoryModelLoadResponse()

        return await _answered(context, call)

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take a model out of memory."""

        async def call() -> Any:
            await self._service.control.change("unload", request.model_name)
            return messages.RepositoryModelUnloadResponse()

        return await _answered(context, call)

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Inference."""

        async def call() -> Any:
            with self._service.admitted(request.ByteSize()):
                result = await self._service.infer(_request(request, context))
                outputs = [
                    messages.ModelInferResponse.InferOutputTensor(
                        **(tensor_facts(spec) | {"shape": list(array.shape)})
                    )
                    for spec, array in result.outputs
                ]
                return messages.ModelInferResponse(
                    model_name=request.model_name,
                    model_version=result.version,
                    id=request.id,
                    outputs=outputs,
                    raw_output_contents=[as_bytes(array) for _, array in result.outputs],
                )

        return await _answered(context, call)


def _request(request: Any, context: Any) -> InferRequest:
    """A message as a request.

    Raises:
        UsageError: its inputs and its data do not belong together.
    """
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise UsageError(
            f"there are {len(request.inputs)} inputs, and raw contents for {len(raw)}",
            hint="give raw contents for all inputs, or for none",
        )
    tensors = [
        GivenTensor(
            each.name,
            each.datatype,
            tuple(each.shape),
            raw[place] if raw else _listed(each),
        )
        for place, each in enumerate(request.inputs)
    ]
    left = context.time_remaining()
    asked = request.parameters["timeout"].int64_param if "timeout" in request.parameters else 0
    limits = [each for each in (left, asked / 1e6) if each]
    return InferRequest(
        model=request.model_name,
        version=request.model_version,
        tensors=tensors,
        outputs=[each.name for each in request.outputs],
        timeout=min(limits) if limits else None,
        headers={
            name: value for name, value in context.invocation_metadata() if type(value) is str
        },
        protocol="grpc",
        id=request.id,
    )


def _listed(tensor: Any) -> list[Any]:
    """The elements of a tensor that is not sent as bytes."""
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise UsageError(
            f"input {tensor.name!r:.80}: {tensor.datatype!r:.20} has no contents",
            hint="send raw contents",
        )
    return list(getattr(tensor.contents, field))
