"""Everything that can be wrong with a command line of the server."""

from __future__ import annotations

from typing import Any

import pytest

from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import replace
from popc_runtime.serving.settings import ModelSource, ServeSettings, model_source

_GOOD = ServeSettings((ModelSource("a", 1, "a.popx"),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b.popx", ModelSource("a", 1, "b.popx")),
        ("a:2=x=y.popx", ModelSource("a", 2, "x=y.popx")),
        ("a-b_c.9=/b", ModelSource("a-b_c.9", 1, "/b")),
    ],
)
def test_sources_are_read(text: str, expected: ModelSource) -> None:
    assert model_source(text) == expected


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a:0=b", "a:x=b", "a b=c", "a/b=c", "a:-1=b"])
def test_what_is_no_source_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=ARCHIVE"):
        model_source(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": ()}, "there is no model to serve"),
        ({"http_port": 70000}, "the port for HTTP must be from 0 to 65535, not 70000"),
        ({"http_port": -1}, "the port for HTTP"),
        ({"grpc_port": 8000}, "HTTP and gRPC cannot both have port 8000"),
        ({"workers": 0}, "the number of workers must be at least 1, not 0"),
        ({"workers": 5000}, "must be at most 1,024, not 5,000"),
        ({"max_wait": float("nan")}, "the wait for a batch must be at least 0, not nan"),
        ({"max_queue": 0}, "the length of the queue"),
        ({"max_pending_bytes": 5}, "the bytes of all requests must be at least 67,108,864, not 5"),
        ({"timeout": 0}, "the time-out must be above 0 seconds"),
        ({"log_format": "xml"}, "there is no log format 'xml': choose from text, json"),
        ({"limits": "none"}, "there are no limits called 'none'"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replace(_GOOD, **changes).check()


def test_all_problems_are_told_at_once() -> None:
    twice = (*_GOOD.models, ModelSource("a", 1, "b.popx"))
    with pytest.raises(UsageError) as caught:
        replace(_GOOD, models=twice, workers=0, log_level="loud").check()
    assert caught.value.details == (
        "model a has version 1 2 times (a.popx, b.popx): write a:2=... for another version",
        "the number of workers must be at least 1, not 0",
        "there is no log level 'loud': choose from debug, info, warning, error",
    )


def test_ports_may_be_any_and_grpc_none() -> None:
    replace(_GOOD, http_port=0, grpc_port=0).check()
    replace(_GOOD, grpc_port=-1).check()
