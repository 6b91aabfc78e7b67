"""Fixtures of several families."""

from __future__ import annotations

import pytest

from popc_runtime.format import Array, Packing, unpack_panels


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of what has been unpacked."""
    shapes: list[tuple[int, ...]] = []

    def watched(packed: Array, shape: tuple[int, ...], packing: Packing) -> Array:
        shapes.append(shape)
        return unpack_panels(packed, shape, packing)

    monkeypatch.setattr("popc_runtime.device.memory.unpack_panels", watched)
    return shapes
