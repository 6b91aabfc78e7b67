"""Bodies of HTTP: JSON, with the binary data of tensors behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.server_facts import tensor_facts
from popc_runtime.serving.service import InferRequest, InferResult
from popc_runtime.serving.tensors import GivenTensor, as_bytes, as_list

__all__ = ["HEADER_LENGTH", "Form", "InferBody", "index_request", "infer_request", "infer_response"]

HEADER_LENGTH: Final = "inference-header-content-length"

_MICROSECONDS: Final = 1e6  # in which clients of Triton give their time-out


class InferBody(NamedTuple):
    """The bytes that were sent; ``header`` is the size of its JSON, "" if that is all."""

    data: bytes
    header: str


@frozen
class Form:
    """The outputs that are wanted as binary data: by name, or in general."""

    by_name: Mapping[str, bool]
    binary: bool

    def is_binary(self, name: str) -> bool:
        """True if an output is wanted so."""
        return self.by_name.get(name, self.binary)


def infer_request(
    body: InferBody, model: str, version: str, headers: Mapping[str, str]
) -> tuple[InferRequest, Form]:
    """The request that a body stands for, and how to answer it.

    Raises:
        UsageError, InputMismatchError: it is none; lists every problem.
    """
    document, rest = _parsed(body)
    tensors = _tensors(document.get("inputs"), rest)
    parameters = _mapping(document, "parameters")
    listed = document.get("outputs", [])
    if not _is_list_of_named(listed):
        raise UsageError("'outputs' is not a list of objects with a name")
    by_name = {
        each["name"]: flag
        for each in listed
        if isinstance(flag := _mapping(each, "parameters").get("binary_data"), bool)
    }
    timeout = parameters.get("timeout")
    if timeout is not None and not (type(timeout) is int and 0 <= timeout < 1 << 63):
        raise UsageError(f"the parameter timeout is a number of microseconds, not {timeout!r:.40}")
    request = InferRequest(
        model=model,
        version=version,
        tensors=tensors,
        outputs=[each["name"] for each in listed],
        timeout=timeout / _MICROSECONDS if timeout else None,
        headers=headers,
        protocol="http",
        id=str(document.get("id", "")),
    )
    return request, Form(by_name, parameters.get("binary_data_output") is True)


def infer_response(model: str, id_: str, result: InferResult, form: Form) -> tuple[bytes, int]:
    """A body, and the size of its JSON.

    Raises:
        UsageError: JSON has no form for an output.
    """
    outputs: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for spec, array in result.outputs:
        facts = tensor_facts(spec) | {"shape": list(array.shape)}
        if form.is_binary(spec.name):
            blobs.append(as_bytes(array))
            facts["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            facts["data"] = as_list(spec, array)
        outputs.append(facts)
    document = {"model_name": model, "model_version": result.version, "outputs": outputs}
    if id_:
        document["id"] = id_
    text = json.dumps(document).encode()
    return b"".join([text, *blobs]), len(text)


def index_request(data: bytes) -> bool:
    """True if a request for the index wants only models that are ready.

    Raises:
        UsageError: it is no JSON object.
    """
    document, _ = _parsed(InferBody(data or b"{}", ""))
    return document.get("ready") is True


def _parsed(body: InferBody) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a body, and what is behind it."""
    size = len(body.data)
    if body.header:
        size = int(body.header) if body.header.isdecimal() and len(body.header) < 16 else -1
        if not 0 <= size <= len(body.data):
            raise UsageError(
                f"Inference-Header-Content-Length is {body.header:.20}, and the body has "
                f"{len(body.data):,} bytes"
            )
    try:
        document = json.loads(body.data[:size])
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the body is not JSON: {error}"[:300],
            hint="binary data needs the header Inference-Header-Content-Length",
        ) from None
    if not isinstance(document, dict):
        raise UsageError("the body is not a JSON object")
    return document, memoryview(body.data)[size:]


def _tensors(listed: Any, rest: memoryview) -> Sequence[GivenTensor]:
    if not _is_list_of_named(listed):
        raise UsageError("'inputs' is not a list of objects with a name")
    problems: list[str] = []
    tensors: list[GivenTensor] = []
    place = 0
    for each in listed:
        size = _mapping(each, "parameters").get("binary_data_size")
        problem = _problem(each, size, rest.nbytes - place)
        if problem:
            problems.append(f"input {each['name']!r:.80}: {problem}")
            continue
        data: Any = each.get("data")
        if size is not None:
            data = rest[place : place + size]
            place += size
        tensors.append(GivenTensor(each["name"], each["datatype"], tuple(each["shape"]), data))
    if not problems and place != rest.nbytes:
        problems = [f"{rest.nbytes - place:,} bytes behind the JSON belong to no input"]
    if problems:
        raise InputMismatchError("the inputs are not as they say", details=tuple(problems))
    return tensors


def _problem(tensor: Mapping[str, Any], size: Any, left: int) -> str:
    """The problem of an input, as a clause; empty if nothing is."""
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(type(each) is int for each in shape):
        return "its shape is not a list of whole numbers"
    if not isinstance(tensor.get("datatype"), str):
        return "it has no datatype"
    if size is None:
        return "" if isinstance(tensor.get("data"), list) else "it has neither data nor a size"
    if type(size) is not int or size < 0:
        return f"its binary_data_size is {size!r:.40}"
    if "data" in tensor:
        return "it has data and a binary_data_size"
    return f"its {size:,} bytes are not there, but {left:,}" if size > left else ""


def _is_list_of_named(listed: Any) -> bool:
    return isinstance(listed, list) and all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in listed
    )


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{name!r} is not an object")
    return found
