"""What a roofline counts of convolutions and products."""

from __future__ import annotations

import pytest

from benchmarks.roofline import Peak, Work, work_of
from popc_runtime.format import DType, Instruction, Region, Slot


@pytest.mark.parametrize(
    ("opcode", "shapes", "attributes", "products", "floats"),
    [
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6)], {}, 144 * 27, 192 + 108 + 144),
        ("Conv", [(2, 4, 5), (4, 1, 2), (2, 4, 4)], {"group": 4}, 32 * 2, 40 + 8 + 32),
        ("ConvTranspose", [(1, 2, 3), (2, 5, 4), (1, 5, 6)], {}, 6 * 20, 6 + 40 + 30),
        ("MatMul", [(7, 2, 3), (3, 4), (7, 2, 4)], {}, 56 * 3, 42 + 12 + 56),
        ("Gemm", [(3, 2), (3, 4), (2, 4)], {"transA": 1}, 8 * 3, 6 + 12 + 8),
    ],
)
def test_work(
    opcode: str,
    shapes: list[tuple[int, ...]],
    attributes: dict[str, int],
    products: int,
    floats: int,
) -> None:
    slots = [Slot(Region.ARENA, 0, DType.FLOAT32, shape) for shape in shapes]
    work = work_of(Instruction(opcode, (0, 1, -1), (2,), attributes), slots)
    assert (work.flops, work.bytes) == (2 * products, 4 * floats)


def test_the_longer_time_is_the_bound() -> None:
    peak = Peak(flops=100.0, bytes=10.0)
    assert peak.bound(Work("", 50.0, 1.0)) == (0.5, "products")
    assert peak.bound(Work("", 50.0, 10.0)) == (1.0, "memory")
