"""TensorFlow's IPUConfig, without TensorFlow.

config = IPUConfig()
config.auto_select_ipus = 2
config.optimizations.combine_matmuls = True
popc.compile(model, options=config)
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from popc.hosts.attributes import HostSettings, SettingsNode
from popc.hosts.run_config import IPURunConfig, RunConfig
from popc.options.dialects.dialect import HostKey
from popc.options.dialects.tensorflow import TENSORFLOW
from popc_runtime.errors import UsageError

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "IPUConfig",
    "IPURunConfig",
    "MergeRemoteBuffersBehaviour",
    "RunConfig",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
]

DeviceConnectionType = Enum("DeviceConnectionType", "ALWAYS ON_DEMAND PRE_COMPILE NEVER")
MergeRemoteBuffersBehaviour = Enum("MergeRemoteBuffersBehaviour", "NO_MERGING MERGE IF_BENEFICIAL")
SchedulingAlgorithm = Enum(
    "SchedulingAlgorithm", "CHOOSE_BEST CLUSTERING POST_ORDER LOOK_AHEAD SHORTEST_PATH"
)
StochasticRoundingBehaviour = Enum("StochasticRoundingBehaviour", "OFF ON REPLICA_IDENTICAL_ONLY")
SelectionOrder = Enum("SelectionOrder", "AUTO ZIGZAG SNAKE HOOF")

_ENUMS: Final[dict[str, type[Enum]]] = {
    "device_connection.type": DeviceConnectionType,
    "optimizations.merge_remote_buffers": MergeRemoteBuffersBehaviour,
    "scheduling.algorithm": SchedulingAlgorithm,
    "selection_order": SelectionOrder,
}


class AttributeMetadata:
    """The facts about an attribute of an `IPUConfig`."""

    deprecated: Final = False
    deprecated_msg: Final = None

    def __init__(self, name: str, key: HostKey | None) -> None:
        """``key`` is missing for a category."""
        self.name = name
        self._key = key

    @property
    def type(self) -> str | None:
        """The type in words; ``None`` for a category."""
        return None if self._key is None else self._key.kind.word

    @property
    def default(self) -> Any:
        """The default; ``None`` for a category."""
        return None if self._key is None else _as_member(self._key)

    def check_type(self, value: object) -> bool:
        """True if the attribute takes ``value``.

        Raises:
            TypeError: it does not.
        """
        if self._key is None:
            raise TypeError(f"{self.name} is a category, and has no value")
        try:
            self._key.kind.parse(value)
        except ValueError as error:
            raise TypeError(f"{self.name} {error}") from None
        return True

    def warn_if_deprecated(self) -> None:
        """Nothing is deprecated."""


class _Category(SettingsNode):
    """A category, whose attributes can be asked for by name."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        full = self._prefix + name
        if isinstance(found, SettingsNode):
            return _Category(self._dialect, f"{full}.", self._values)
        if full in _ENUMS and isinstance(found, str):
            return _ENUMS[full][found]
        return found

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """The facts about an attribute, by its name below this category.

        Raises:
            ValueError: there is no such attribute.
        """
        full = self._prefix + attr
        if not self._dialect.knows(full):
            raise ValueError(self._unknown(full))
        return AttributeMetadata(full, self._dialect.by_name.get(full))


class IPUConfig(_Category, HostSettings):
    """The configuration of a program, as TensorFlow for the IPU has it."""

    def __init__(self) -> None:
        HostSettings.__init__(self, TENSORFLOW)

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """There is no system to configure: a configuration belongs to one compilation.

        Raises:
            UsageError: in any case.
        """
        del device
        raise UsageError(
            "popc has no system that could be configured",
            hint="hand the configuration over: popc.compile(model, options=config)",
        )


def _as_member(key: HostKey) -> Any:
    return _ENUMS[key.name][key.default] if key.name in _ENUMS else key.default
