"""Paddle's classes for compiled programs, without Paddle; a program is an ONNX model.

strategy = IpuStrategy()
strategy.set_graph_config(num_ipus=2, is_training=False, micro_batch_size=1)
archive = IpuCompiledProgram("model.onnx", ipu_strategy=strategy).compile(["x"], ["y"])
popc_runtime.load(archive)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from popc.archive import Archive
from popc.caching.models import compile_model
from popc.frontend import ModelSource
from popc.hosts.attributes import HostSettings, SettingsNode
from popc.options.dialects.paddle import PADDLE
from popc.request import CompileKeywords, CompileRequest
from popc_runtime.errors import UsageError

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "IpuCompiledProgram",
    "IpuStrategy",
]


class IpuStrategy(HostSettings):
    """The options of a program for the IPU."""

    def __init__(self) -> None:
        super().__init__(PADDLE)

    def set_graph_config(
        self,
        num_ipus: int = 1,
        is_training: bool = True,  # noqa: FBT001, FBT002 - Paddle's signature
        micro_batch_size: int = 1,
        enable_manual_shard: bool = False,  # noqa: FBT001, FBT002 - Paddle's signature
    ) -> None:
        """Chips, and the size of the open first dimension of inputs."""
        self._set(
            num_ipus=num_ipus,
            is_training=is_training,
            micro_batch_size=micro_batch_size,
            enable_manual_shard=enable_manual_shard,
        )

    def set_pipelining_config(
        self,
        enable_pipelining: bool = False,  # noqa: FBT001, FBT002 - Paddle's signature
        batches_per_step: int = 1,
        enable_gradient_accumulation: bool = False,  # noqa: FBT001, FBT002 - Paddle's signature
        accumulation_factor: int = 1,
    ) -> None:
        """Pipelines, and how many batches a step has."""
        self._set(
            enable_pipelining=enable_pipelining,
            batches_per_step=batches_per_step,
            enable_gradient_accumulation=enable_gradient_accumulation,
            accumulation_factor=accumulation_factor,
        )

    def set_precision_config(self, enable_fp16: bool = False) -> None:  # noqa: FBT001, FBT002 - Paddle's signature
        """True if the program computes in float16."""
        self._set(enable_fp16=enable_fp16)

    def set_options(self, options: Mapping[str, object]) -> None:
        """Any settings by name."""
        self._set(**options)

    def _set(self, **settings: Any) -> None:
        for name, value in settings.items():
            setattr(self, name, value)


class _Strategy(SettingsNode):
    """The settings of one of Paddle's other strategies."""

    _category = ""

    def __init__(self) -> None:
        super().__init__(PADDLE, f"{self._category}.", {})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that have been made, by full name."""
        return dict(self._values)


class BuildStrategy(_Strategy):
    """The optimisation of a program."""

    _category = "build_strategy"


class ExecutionStrategy(_Strategy):
    """The way in which a program is run."""

    _category = "exec_strategy"


class IpuCompiledProgram:
    """A program that is going to be compiled for the IPU."""

    def __init__(
        self, program: ModelSource, scope: None = None, ipu_strategy: IpuStrategy | None = None
    ) -> None:
        """``program`` is an ONNX model, which holds its weights, so that there is no scope."""
        del scope
        self._program = program
        self._strategy = ipu_strategy or IpuStrategy()

    def compile(
        self,
        feed_list: Sequence[str],
        fetch_list: Sequence[str],
        **keywords: Unpack[CompileKeywords],
    ) -> Archive:
        """The archive of the program that takes ``feed_list`` and gives ``fetch_list``.

        Further ``keywords`` are those of `popc.compile`: ``train`` or ``loss`` and ``optimizer``
        for a program that trains.

        Raises:
            UsageError: inputs are missing in ``feed_list``, or there are none of these names.
            PopcError: see `popc.compile`.
        """
        return _compiled(self._program, self._strategy, feed_list, fetch_list, keywords)


class CompiledProgram:
    """A program that is going to be compiled, for one replica or for several."""

    def __init__(
        self, program_or_graph: ModelSource, build_strategy: BuildStrategy | None = None
    ) -> None:
        self._program = program_or_graph
        self._settings: dict[str, Any] = build_strategy.settings if build_strategy else {}

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[object] | None = None,
    ) -> Self:
        """The same with a replica at each of ``places``.

        The weights of ``share_vars_from`` are copied at run time: see `popc_runtime.Evaluation`.
        """
        if build_strategy is not None:
            kept = {k: v for k, v in self._settings.items() if not k.startswith("build_")}
            self._settings = {**kept, **build_strategy.settings}
        if exec_strategy is not None:
            self._settings.update(exec_strategy.settings)
        if places is not None:
            self._settings["with_data_parallel.places"] = [*map(str, places)]
        if share_vars_from is not None:
            self._settings["with_data_parallel.share_vars_from"] = "another program"
        self._loss = loss_name
        return self

    _loss: str | None = None

    def compile(
        self,
        feed_list: Sequence[str],
        fetch_list: Sequence[str],
        **keywords: Unpack[CompileKeywords],
    ) -> Archive:
        """Compile as `IpuCompiledProgram.compile`, with the loss of `with_data_parallel`."""
        if self._loss is not None and "optimizer" in keywords:
            keywords.setdefault("loss", self._loss)
        settings = {"dialect": PADDLE.name, **self._settings}
        return _compiled(self._program, settings, feed_list, fetch_list, keywords)


def _compiled(
    program: ModelSource,
    settings: Mapping[str, object],
    feed_list: Sequence[str],
    fetch_list: Sequence[str],
    keywords: CompileKeywords,
) -> Archive:
    wanted: CompileKeywords = {**keywords, "options": settings, "outputs": tuple(fetch_list)}
    loaded = CompileRequest.of(program, **wanted).load()
    known = [info.name for info in loaded.inputs]
    if sorted(feed_list) != sorted(known):
        raise UsageError(
            f"feed_list is {', '.join(feed_list)}, but the inputs are {', '.join(known)}",
            hint="bind={name: value} makes a constant of an input that is not fed",
        )
    return compile_model(loaded, **wanted)
