"""Optimum Graphcore's IPUConfig, without Optimum.

config = IPUConfig.from_pretrained("folder")  # with an ipu_config.json
popc.compile(model, options=config, train="loss.toml")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, Self

from popc.hosts.attributes import HostSettings
from popc.options import Options
from popc.options.dialects.dialect import HostKey
from popc.options.dialects.optimum import OPTIMUM
from popc.request import make_options
from popc_runtime.errors import ResourceError, UsageError

__all__ = ["IPUConfig"]

_FREE: Final = "kwargs"  # tables of anything
_FILE: Final = "ipu_config.json"
_PODS: Final = ("pod4", "pod8", "pod16", "pod32", "pod64")
# What multiplies the samples of a micro-batch.
_BATCHES: Final = ("replication_factor", "gradient_accumulation_steps", "device_iterations")
_BATCHES_OF_INFERENCE: Final = ("inference_replication_factor", "inference_device_iterations")
_TRUE: Final = frozenset({"true", "1", "y", "yes"})
_FALSE: Final = frozenset({"false", "0", "n", "no"})


class IPUConfig(HostSettings):
    """The configuration of a program, as Optimum has it."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` by name.

        Raises:
            AttributeError: there is no such setting.
            TypeError: a value is of the wrong kind.
        """
        super().__init__(OPTIMUM)
        for name, value in settings.items():
            setattr(self, name, value)

    @staticmethod
    def checked(key: HostKey, value: Any) -> Any:
        """``value``, which may be a table by kind of pod, if the setting takes it."""
        if isinstance(value, Mapping) and not key.name.endswith(_FREE):
            for item in value.values():
                HostSettings.checked(key, item)
            return value
        return HostSettings.checked(key, value)

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], **settings: Any) -> Self:
        """From a file, or from ``ipu_config.json`` in a folder; ``settings`` take precedence.

        Raises:
            ResourceError: there is no such file, or it holds no table.
        """
        file = Path(path)
        file = file / _FILE if file.is_dir() else file
        try:
            table = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ResourceError(
                f"cannot read {file}: {error.strerror}",
                hint="a model's page has the file; nothing is fetched from there",
            ) from error
        except ValueError as error:
            raise ResourceError(f"{file} is not JSON: {error}") from error
        if not isinstance(table, dict):
            raise ResourceError(f"{file} must hold a table of settings")
        return cls(**{**table, **settings})

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``ipu_config.json`` into a folder, which is made if need be.

        Raises:
            ResourceError: that fails.
        """
        file = Path(folder) / _FILE
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.to_json_string(), encoding="utf-8")
        except OSError as error:
            raise ResourceError(f"cannot write {file}: {error.strerror}") from error
        return file

    def to_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return {name: getattr(self, name) for name in OPTIMUM.by_name}

    def to_json_string(self) -> str:
        """The settings that have been made, as the content of a file."""
        return json.dumps(self._values, indent=2, sort_keys=True) + "\n"

    def for_pod_type(self, pod_type: str | None = None) -> Self:
        """With the values for one kind of pod where there is one for each kind.

        Raises:
            UsageError: there is no such kind, or a setting has no value for it.
        """
        if pod_type is not None and pod_type not in _PODS:
            raise UsageError(f"there is no pod {pod_type!r}", hint=f"pods are {', '.join(_PODS)}")
        return type(self)(
            **{name: _for_pod(name, value, pod_type) for name, value in self._values.items()}
        )

    def batch_size_factor(self, for_inference: bool = False, pod_type: str | None = None) -> int:  # noqa: FBT001, FBT002 - Optimum's signature
        """By how much the samples of a step are more than those of a micro-batch."""
        config = self.for_pod_type(pod_type)
        names = _BATCHES_OF_INFERENCE if for_inference else _BATCHES
        return prod(int(getattr(config, name)) for name in names)

    def to_options(
        self,
        for_inference: bool = False,  # noqa: FBT001, FBT002 - Optimum's signature
        compile_only: bool = False,  # noqa: FBT001, FBT002 - Optimum's signature
        pod_type: str | None = None,
    ) -> Options:
        """These settings as options of popc; compiling never needs a device.

        Raises:
            OptionError: lists everything that is wrong.
        """
        del compile_only
        return make_options(self.for_pod_type(pod_type), trains=not for_inference)

    def update_from_string(self, update_str: str) -> None:
        """Change settings: ``replication_factor=2,layers_per_ipu=[1 2],seed=7``.

        Raises:
            UsageError: there is no such setting, or a value is of the wrong kind.
        """
        for item in filter(None, update_str.split(",")):
            name, separator, text = item.partition("=")
            if not separator or name.strip() not in OPTIMUM.by_name:
                advice = OPTIMUM.advice(name.strip())
                raise UsageError(f"{item!r} changes no setting", hint=advice)
            try:
                setattr(self, name.strip(), _read(name.strip(), text.strip()))
            except (TypeError, ValueError) as error:
                raise UsageError(f"{item!r}: {error}") from error


def _read(name: str, text: str) -> Any:
    """A value as text, in the form of Optimum."""
    key = OPTIMUM.by_name[name]
    if isinstance(key.default, bool):
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{text!r} is neither true nor false")
    if text.startswith("["):
        return json.loads(text.replace(" ", ","))
    return key.kind.parse(text)


def _for_pod(name: str, value: Any, pod_type: str | None) -> Any:
    if not isinstance(value, Mapping) or name.endswith(_FREE):
        return value
    if pod_type in value:
        return value[pod_type]
    if "default" in value:
        return value["default"]
    raise UsageError(
        f"{name} has values for {', '.join(map(str, value))}, and none for {pod_type or 'others'}"
    )
