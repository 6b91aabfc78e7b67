"""The description of a target: one chip, and how chips, host and streaming memory are connected."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from popc.target.topology import SelectionOrder, Topology
from popc_runtime.ground.frozen import frozen

__all__ = ["Conv", "Exchange", "Host", "Links", "Target", "Tile"]


@frozen
class Tile:
    """A tile, and how many of them a chip has.

    Attributes:
        count: Tiles of a chip.
        memory_bytes: Memory of one; ``interleaved_bytes`` of it are read 16 bytes at a time.
        vertex_launch_cycles: What starting a vertex takes beside the vertex itself.
        stack_bytes: Of all its contexts together.
    """

    count: int
    memory_bytes: int
    interleaved_bytes: int
    clock_hz: int
    worker_contexts: int
    data_path_bits: int
    memcpy_bytes_per_cycle: int
    vertex_launch_cycles: int
    stack_bytes: int


@frozen
class Conv:
    """The units for accumulating matrix products, by types of operands and results.

    With ``products_by_columns`` products are planned as in poplin's first years, when the columns
    of the result were the field of the convolution that a product is, not the rows.
    """

    fp16_in_fp16_out_units: int
    fp16_in_fp32_out_units: int
    fp32_in_fp32_out_units: int
    coefficient_load_bytes_per_cycle: int
    pipeline_depth: int
    fp8_in_fp16_out_units: int = 0
    products_by_columns: bool = False


@frozen
class Exchange:
    """The exchange between tiles; ``setup_cycles`` and ``sync_cycles`` are what a phase takes."""

    bytes_per_cycle: int
    shared_bus_tiles: int
    setup_cycles: int
    sync_cycles: int
    global_sync_cycles: int
    instruction_bytes: int


@frozen
class Links:
    """The links between chips; their numbers are those of one chip, by direction."""

    topology: Topology
    max_ipus: int
    link_bits_per_second: int
    efficiency: float
    intra_card: int
    cross: int
    up: int


@frozen
class Host:
    """The connection to host and streaming memory, each way, per chip."""

    bytes_per_second: int
    packet_bytes: int
    streaming_memory_bytes: int
    streaming_bytes_per_second: int


@frozen
class Target:
    """A system of chips, and how much of it a program uses.

    Attributes:
        num_ipus: How many chips the program has.
        num_io_tiles: Tiles of each chip that only transfer; the others only compute.
        selection_order: In which order the program counts the chips.
    """

    name: str
    description: str
    tile: Tile
    conv: Conv
    exchange: Exchange
    links: Links
    host: Host
    num_ipus: int = 1
    num_io_tiles: int = 0
    selection_order: SelectionOrder = SelectionOrder.AUTO

    @property
    def tiles_per_ipu(self) -> int:
        """All tiles of a chip."""
        return self.tile.count

    @property
    def compute_tiles(self) -> int:
        """The tiles of a chip that compute."""
        return self.tile.count - self.num_io_tiles

    @property
    def memory_bytes(self) -> int:
        """The memory of all chips of the program."""
        return self.num_ipus * self.tile.count * self.tile.memory_bytes

    @property
    def host_bytes_per_cycle(self) -> float:
        """Bytes between host and one chip while its clock ticks once."""
        return self.host.bytes_per_second / self.tile.clock_hz

    def peak_flops(self, units: int, elements_per_unit: int) -> int:
        """Floating-point operations per second of one chip, two for each multiply-accumulate."""
        return 2 * units * elements_per_unit * self.tile.count * self.tile.clock_hz

    def to_dict(self) -> dict[str, Any]:
        """The target as plain data, in the form of a target file and the settings beside it."""
        data: dict[str, Any] = {"name": self.name, "description": self.description}
        for name in ("tile", "conv", "exchange", "links", "host"):
            part = getattr(self, name)
            values = {field.name: getattr(part, field.name) for field in fields(part)}
            data[name] = {key: _plain(value) for key, value in values.items()}
        data["num_ipus"], data["num_io_tiles"] = self.num_ipus, self.num_io_tiles
        data["selection_order"] = self.selection_order.value
        return data


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Topology) else value
