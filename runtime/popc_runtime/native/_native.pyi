from collections.abc import Callable
from typing import Any, Self, final

from typing_extensions import Buffer

__all__ = ["Block", "Direct", "Program", "address", "kernels", "sha256", "variants", "window"]

def variants() -> list[str]: ...
def kernels(variant: str, /) -> dict[str, int]: ...
def address(buffer: Buffer, /) -> int: ...
def sha256(buffer: Buffer, /) -> bytes | None: ...
def window(address: int, size: int, /) -> memoryview: ...

class Program:
    def __new__(
        cls,
        variant: str,
        records: bytes,
        calls: tuple[Callable[[], object], ...],
        kept: object,
        threads: int = 1,
        landings: bytes = b"",
        /,
    ) -> Self: ...
    def run(self, threads: int, deadline: int = 0, /) -> tuple[int, int] | None: ...
    def measure(self, wanted: int, /) -> None: ...
    def nanoseconds(self, record: int, /) -> int: ...

@final
class Block:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Direct:
    def __new__(
        cls,
        program: Program,
        inputs: tuple[tuple[object, ...], ...],
        outputs: tuple[tuple[object, ...], ...],
        array_type: type,
        empty: Callable[..., object],
        block_type: type[Block],
        fail: Callable[[int, int], object],
        threads: int,
        stores_last: bool,
        /,
    ) -> Self: ...
    def lent(self) -> list[str]: ...
    def run(self, inputs: object, out: object, /) -> dict[str, Any] | None: ...
