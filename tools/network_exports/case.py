"""A network and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Case", "Lambda"]


@dataclass(frozen=True)
class Case:
    """A network to export.

    Attributes:
        module: Makes the network; its weights are random.
        inputs: Makes the arguments of its ``forward``.
    """

    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


class Lambda(nn.Module):
    """A function among layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: torch.Tensor) -> Any:
        """The function's result."""
        return self.function(*values)
