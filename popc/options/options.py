"""The one schema of options: every option that exists, with its kind, default and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.options.foreign import ForeignSettings
from popc.options.groups.archive import ArchiveOptions
from popc.options.groups.arithmetic import ArithmeticOptions
from popc.options.groups.batch_serialization import BatchOptions
from popc.options.groups.budget import BudgetOptions
from popc.options.groups.checks import CheckOptions
from popc.options.groups.effort import EffortOptions
from popc.options.groups.memory import MemoryOptions
from popc.options.groups.models import ModelOptions
from popc.options.groups.nodes import NodeOptions
from popc.options.groups.outlining import OutlineOptions
from popc.options.groups.placement import PlacementOptions
from popc.options.groups.recomputation import RecomputationOptions
from popc.options.groups.replicas import ReplicaOptions
from popc.options.groups.rewrites import RewriteOptions
from popc.options.groups.schedule import ScheduleOptions
from popc.options.groups.states import StateOptions
from popc.options.groups.steps import StepOptions
from popc.options.groups.streaming import StreamingOptions
from popc.options.groups.target import TargetOptions
from popc.options.groups.training import TrainingOptions
from popc.options.groups.transfers import TransferOptions
from popc.options.schema import OptionSpec, spec_of
from popc.options.table import FrozenTable
from popc_runtime.errors import OptionError
from popc_runtime.format import OptionSetting, Origin
from popc_runtime.ground.frozen import field_settings, inheritable

__all__ = ["SCHEMA", "Options", "describe_options"]

_NO_ORIGINS: Final[FrozenTable[Origin]] = FrozenTable()
_NOT_FOREIGN: Final = ForeignSettings()


@inheritable
class Options(
    ArchiveOptions,
    ArithmeticOptions,
    BatchOptions,
    BudgetOptions,
    CheckOptions,
    EffortOptions,
    MemoryOptions,
    ModelOptions,
    NodeOptions,
    OutlineOptions,
    PlacementOptions,
    RecomputationOptions,
    ReplicaOptions,
    RewriteOptions,
    ScheduleOptions,
    StateOptions,
    StepOptions,
    StreamingOptions,
    TargetOptions,
    TrainingOptions,
    TransferOptions,
):
    """The effective options of a compilation, one attribute each.

    ``origins`` says where values come from; an option that it does not list has its default.
    ``foreign`` is the account of settings of another system, if options were made of such.
    """

    origins: FrozenTable[Origin] = _NO_ORIGINS
    foreign: ForeignSettings = _NOT_FOREIGN

    def __post_init__(self) -> None:
        """Refuse text in place of members of enums: it would be equal to them, but not the same.

        Raises:
            OptionError: lists the options that hold such text.
        """
        wrong = [spec for spec in SCHEMA if not spec.kind.is_parsed(getattr(self, spec.name))]
        if wrong:
            raise OptionError(
                "options hold text that has not been parsed",
                subject=wrong[0].name,
                details=tuple(f"{field.name} is {getattr(self, field.name)!r}" for field in wrong),
                hint="pass them through popc.make_options, which parses text",
            )

    @property
    def number_of_parts(self) -> int:
        """The number of parts that a model is divided into among chips."""
        return len(self.device_mapping) or self.num_ipus

    def origin(self, name: str) -> Origin:
        """The source of the value of an option."""
        return self.origins.get(name, Origin.DEFAULT)

    def settings(self) -> tuple[OptionSetting, ...]:
        """Every effective value with its origin, sorted by name."""
        return tuple(map(self._setting, SCHEMA))

    def to_manifest(self) -> tuple[OptionSetting, ...]:
        """The same of what archives record."""
        return tuple(self._setting(spec) for spec in SCHEMA if spec.recorded)

    def _setting(self, spec: OptionSpec) -> OptionSetting:
        value = spec.kind.plain(getattr(self, spec.name))
        return OptionSetting(spec.name, value, self.origin(spec.name))


def _schema() -> tuple[OptionSpec, ...]:
    specs = [spec_of(name, said) for name, said in field_settings(Options).items()]
    return tuple(sorted(filter(None, specs), key=lambda spec: spec.name))


SCHEMA: Final = _schema()


def describe_options(pass_names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every option as plain data, for listings and for machines."""
    return [
        {
            "name": spec.name,
            "type": spec.kind.word,
            "default": spec.kind.plain(spec.default),
            "choices": list(pass_names if spec.name == "disabled_passes" else spec.kind.choices),
            "range": list(spec.kind.bounds),
            "summary": spec.meaning.split(". ")[0].rstrip("."),
            "help": spec.meaning,
            "popart": spec.popart,
            "variable": spec.variable,
        }
        for spec in SCHEMA
    ]
