"""Proof that inputs of other sizes may be split, or filled up, without a change of any result."""

from __future__ import annotations

from popc.frontend import LoadedModel
from popc.requests import Requests
from popc_runtime.format import FitSpec

__all__ = ["prove_fits"]


def prove_fits(requests: Requests, loaded: LoadedModel) -> tuple[FitSpec, ...]:
    """TODO."""
    return ()
