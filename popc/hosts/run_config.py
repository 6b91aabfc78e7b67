"""TensorFlow's RunConfig and IPURunConfig, without TensorFlow.

config = RunConfig(IPURunConfig(iterations_per_loop=10), model_dir="runs/1")
estimator = config.estimator("model.onnx", train="train.toml")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from popc.options.dialects.tensorflow import TENSORFLOW
from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.frontend import ModelSource
    from popc.trained.estimator import Estimator
    from popc_runtime.groups import Group

__all__ = ["IPURunConfig", "RunConfig"]

_CLUSTER: Final = "TF_CONFIG"
_SECONDS: Final = 600  # between checkpoints if nothing is said
# What only TensorFlow's sessions and servers know, and what does the same here.
_WITHOUT: Final = {
    "device_fn": "annotations place nodes",
    "eval_distribute": "mpiexec starts processes",
    "experimental_distribute": "mpiexec starts processes",
    "experimental_max_worker_delay_secs": "mpiexec starts processes",
    "save_summary_steps": "there are no summaries: popc.StepLog writes lines",
    "protocol": "processes exchange data by MPI",
    "session_config": "there are no sessions of TensorFlow",
    "session_creation_timeout_secs": "there are no sessions of TensorFlow",
    "train_distribute": "mpiexec starts processes",
}


@frozen
class IPURunConfig:
    """Settings of an estimator's device; names and defaults are TensorFlow's."""

    iterations_per_loop: int = 1
    ipu_options: Mapping[str, Any] | None = None
    compile_summary: bool = False
    num_replicas: int = 1
    num_shards: int = 1
    ordinal: int = 0
    prefetch_depth: int | None = None

    def options(self, processes: int = 1) -> dict[str, Any]:
        """The same as options, for a program whose replicas so many processes divide.

        Raises:
            UsageError: the number of chips does not fit, or another device is asked for.
        """
        if self.ordinal:
            raise UsageError(
                f"ordinal is {self.ordinal}, but a program has a device of its own",
                hint="load the archive once for each device",
            )
        given = dict(self.ipu_options or {})
        found: dict[str, Any] = {"dialect": TENSORFLOW.name, **self._without_chips(given)}
        if self.iterations_per_loop > 1:
            found["batches_per_step"] = self.iterations_per_loop
        if self.num_shards > 1:
            found |= {"num_ipus": self.num_shards, "virtual_graph_mode": "auto"}
        if self.num_replicas * processes > 1:
            found["replicated_graph_count"] = self.num_replicas * processes
        if self.prefetch_depth is not None:
            found["default_buffering_depth"] = self.prefetch_depth
        return {**found, "cost_report": True} if self.compile_summary else found

    def _without_chips(self, given: dict[str, Any]) -> dict[str, Any]:
        """``given`` without the chips of all replicas, which num_shards and num_replicas say."""
        chips = given.get("auto_select_ipus")
        wanted = self.num_shards * self.num_replicas
        if chips is None or wanted == 1:
            return given
        if chips != wanted:
            raise UsageError(
                f"auto_select_ipus is {chips}, but {self.num_replicas} replicas of "
                f"{self.num_shards} shards need {wanted}"
            )
        return {name: value for name, value in given.items() if name != "auto_select_ipus"}


class RunConfig:
    """Settings of an estimator, and the place of this process among others, by TF_CONFIG.

    Attributes:
        cluster_spec: Addresses by type of task.
        task_type, task_id: What this process is.
        master: Its address; "" without a cluster.
        is_chief: Whether it is the chief.
        num_worker_replicas, num_ps_replicas: How many processes train, and serve parameters.
    """

    def __init__(
        self,
        ipu_run_config: IPURunConfig | None = None,
        master: str | None = None,
        *,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_checkpoints_steps: int | None = None,
        save_checkpoints_secs: float | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10_000,
        log_step_count_steps: int | None = 100,
        **others: Any,
    ) -> None:
        """See TensorFlow's RunConfig; ``others`` are what only TensorFlow has, which is refused.

        Raises:
            ValueError: steps and seconds are given, or TF_CONFIG is wrong.
            UsageError: something is set that only TensorFlow has.
        """
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError(
                "Can not provide both save_checkpoints_steps and save_checkpoints_secs."
            )
        _refuse(others)
        self.ipu_run_config = ipu_run_config or IPURunConfig()
        self.model_dir = Path(model_dir) if model_dir is not None else None
        self.tf_random_seed = tf_random_seed
        self.save_checkpoints_steps = save_checkpoints_steps
        both = (save_checkpoints_steps, save_checkpoints_secs)
        self.save_checkpoints_secs = _SECONDS if both == (None, None) else save_checkpoints_secs
        self.keep_checkpoint_max = keep_checkpoint_max
        self.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self.log_step_count_steps = log_step_count_steps
        self._read(json.loads(os.environ.get(_CLUSTER) or "{}"))
        if master is not None:
            self.master = master

    def _read(self, told: Mapping[str, Any]) -> None:
        """Take over TF_CONFIG, as TensorFlow reads it."""
        cluster: dict[str, list[str]] = dict(told.get("cluster") or {})
        task = told.get("task") or {}
        if cluster and not ("type" in task and "index" in task):
            raise ValueError('If "cluster" is set in TF_CONFIG, task type and index must be set.')
        self.task_type: str = task.get("type", "worker")
        self.task_id = int(task.get("index", 0))
        if cluster and len(cluster.get("chief", ())) != 1:
            raise ValueError('The "cluster" in TF_CONFIG must have only one "chief" node.')
        self.is_chief = self.task_type == "chief" or not cluster
        self.num_worker_replicas = len(cluster.get("chief", ())) + len(cluster.get("worker", ()))
        self.num_ps_replicas = len(cluster.get("ps", ()))
        if not cluster:
            self.num_worker_replicas = 1
        if self.task_type == "evaluator":
            cluster, self.is_chief = {}, False
            self.num_worker_replicas = self.num_ps_replicas = 0
        self.cluster_spec = cluster
        nodes = cluster.get(self.task_type, [])
        if cluster and not 0 <= self.task_id < len(nodes):
            raise ValueError(f"{self.task_id} is not a valid task_id for {self.task_type}")
        self.master = nodes[self.task_id] if cluster else ""

    @property
    def rank(self) -> int:
        """The number of this process among those that train: the chief is the first."""
        before = len(self.cluster_spec.get("chief", ())) if self.task_type == "worker" else 0
        return before + self.task_id

    def options(self) -> dict[str, Any]:
        """The options of the program."""
        return self.ipu_run_config.options(max(self.num_worker_replicas, 1))

    def estimator(
        self, model: ModelSource, *, group: Group | None = None, **keywords: Any
    ) -> Estimator:
        """An estimator that trains ``model`` so.

        Args:
            model: As for `popc.compile`.
            group: What `popc_runtime.groups.join` gives, where TF_CONFIG names several processes.
            **keywords: Of `popc.Estimator`; ``options`` win over those of this configuration,
                and ``hooks`` come beside its log.

        Raises:
            UsageError: there is no ``model_dir``, or the processes are not those of TF_CONFIG.
            PopcError: see `popc.Estimator`.
        """
        from popc.trained.estimator import Estimator
        from popc.trained.step_log import StepLog

        if self.model_dir is None:
            raise UsageError("RunConfig has no model_dir", hint="say where checkpoints are to be")
        self._require(group)
        settings: dict[str, Any] = {
            "save_every_steps": self.save_checkpoints_steps,
            "save_every_seconds": self.save_checkpoints_secs,
            "keep": self.keep_checkpoint_max or 0,
            "keep_every_hours": self.keep_checkpoint_every_n_hours,
            "seed": self.tf_random_seed or 0,
        }
        hooks = [*keywords.pop("hooks", ())]
        if self.log_step_count_steps is not None:
            hooks.append(StepLog(every_steps=self.log_step_count_steps))
        options = {**self.options(), **keywords.pop("options", {})}
        given: Any = {**settings, **keywords, "options": options, "hooks": hooks, "group": group}
        return Estimator(model, self.model_dir, **given)

    def _require(self, group: Group | None) -> None:
        """Raise UsageError unless ``group`` is that of the processes in TF_CONFIG."""
        if self.task_type == "ps":
            raise UsageError(
                "this process serves parameters, but replicas keep their own",
                hint="leave ps out of TF_CONFIG",
            )
        wanted = (self.num_worker_replicas, self.rank)
        if group is None and self.num_worker_replicas > 1:
            raise UsageError(
                f"TF_CONFIG names {self.num_worker_replicas} processes that train",
                hint="start them with mpiexec, and give what popc_runtime.groups.join() gives",
            )
        if group is not None and wanted != (group.size, group.rank):
            raise UsageError(
                f"TF_CONFIG says that this is process {wanted[1]} of {wanted[0]}, but mpiexec that "
                f"it is process {group.rank} of {group.size}"
            )


def _refuse(others: Mapping[str, Any]) -> None:
    unknown = [name for name in others if name not in _WITHOUT]
    if unknown:
        raise TypeError(f"RunConfig() got an unexpected keyword argument {unknown[0]!r}")
    given = {name: _WITHOUT[name] for name, value in others.items() if value is not None}
    if given:
        raise UsageError(
            "RunConfig has settings that only TensorFlow has",
            details=tuple(f"{name}: {reason}" for name, reason in given.items()),
        )
