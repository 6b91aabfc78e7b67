"""The emulated device: memory regions and the engine that runs programs on them."""

from __future__ import annotations

from popc_runtime.device.bound_program import missing_opcodes
from popc_runtime.device.choose import ENGINES, binder_type
from popc_runtime.device.engine import Engine
from popc_runtime.device.memory import Memory
from popc_runtime.device.ports import InputPort, OutputPort, Ports
from popc_runtime.device.steps import InstructionTime
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.device.replicas import ReplicatedEngine

__all__ = [
    "ENGINES",
    "Engine",
    "InputPort",
    "InstructionTime",
    "Memory",
    "OutputPort",
    "Ports",
    "ReplicatedEngine",
    "binder_type",
    "missing_opcodes",
]

# Most archives are for one replica.
__getattr__ = lazy_names(__name__, {"ReplicatedEngine": "popc_runtime.device.replicas"})
