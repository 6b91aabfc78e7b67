"""The tensors that live on the device from run to run, as the host reads and writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from popc_runtime.device import Engine
from popc_runtime.errors import CheckpointError, DeviceError, UsageError
from popc_runtime.format import LOAD_PROGRAM, Array, Manifest, VariableRole, VariableSpec
from popc_runtime.groups import once
from popc_runtime.state.replicated import Replicated

if TYPE_CHECKING:
    import numpy.typing as npt

    from popc_runtime.device import ReplicatedEngine
    from popc_runtime.process.run_lock import RunLock

__all__ = ["DeviceState"]


class DeviceState:
    """The variables and the random numbers of an executable.

    Thread-safe: reading and writing waits for a run that is going on.

    Attributes:
        specs: Name, dtype, shape and role of each variable.
    """

    def __init__(
        self, engine: Engine | ReplicatedEngine, manifest: Manifest, turns: RunLock
    ) -> None:
        self.specs: tuple[VariableSpec, ...] = manifest.variables
        self._engine = engine
        self._manifest = manifest
        self._turns = turns
        self._lock = turns.lock
        self._between = Replicated.of(engine)

    def read(
        self, role: VariableRole | None = None, *, every_replica: bool = False
    ) -> dict[str, Array]:
        """Copies of the values of all variables, or of those of one role, by name.

        What all replicas hold alike is read from the first; of a variable that some replicas share,
        each group's values are a row; parts of a divided one are put together.  With
        ``every_replica`` there is a row for each replica.  Of a group of processes, all read
        together.
        """
        with self._lock:
            specs = [spec for spec in self.specs if role is None or spec.role is role]
            if every_replica:
                held = self._between.held(specs)
                return {spec.name: np.stack(held[spec.name]) for spec in specs}
            return self._values(specs)

    def _values(self, specs: Sequence[VariableSpec]) -> dict[str, Array]:
        """Copies of the values of variables, by name."""
        held = self._between.held([spec for spec in specs if spec.rows])
        return {
            spec.name: self._value(spec, held.get(spec.name) or self._held(spec.name))
            for spec in specs
        }

    def _held(self, name: str) -> list[Array]:
        """The arrays of a variable, one per replica of this process."""
        return [engine.variables[name] for engine in self._engine.replicas]

    @staticmethod
    def _value(spec: VariableSpec, held: Sequence[Array]) -> Array:
        if not spec.rows:
            return held[0].copy()
        rows = np.stack([held[spec.rows.index(row)] for row in range(spec.parts)])
        if not spec.whole:
            return rows
        return rows.reshape(-1)[: prod(spec.whole)].reshape(spec.whole)

    def _set(self, spec: VariableSpec, value: npt.ArrayLike) -> None:
        share, rows = self._between.share, np.asarray(value)
        if spec.whole:
            padded = np.zeros((spec.parts, *spec.shape), spec.dtype.storage)
            padded.reshape(-1)[: rows.size] = rows.reshape(-1)
            rows = padded
        for number, array in zip(share.own, self._held(spec.name), strict=True):
            np.copyto(array, rows[spec.rows[number]] if spec.rows else rows)

    def check_equal_across_replicas(self) -> None:
        """Check that replicas which share a variable hold the same values, bit for bit.

        Of a group of processes, all check together.

        Raises:
            DeviceError: they do not; lists the variables with the replicas that differ.
        """
        with self._lock:
            marks = self._between.marks(self.specs)
            problems = [line for spec in self.specs for line in _differences(spec, marks)]
        if problems:
            raise DeviceError(
                "variables differ between replicas that share them",
                details=tuple(problems),
                hint="one replica alone has written them: reduce the values over the replicas, or "
                "let replicas differ by variable_settings",
            )

    def write(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Replace the values of some variables: of all that are given, or of none.

        Raises:
            InputMismatchError: names are unknown, dtypes or shapes differ; lists every problem.
        """
        from popc_runtime.state.variables import check_variables

        checked = check_variables(self.specs, values)
        with self._lock:
            for spec in self.specs:
                if spec.name in checked:
                    self._set(spec, checked[spec.name])
            if len(checked) == len(self.specs):
                self._turns.is_torn = False

    def reset(self) -> None:
        """Give all variables the values that they had when the archive was loaded."""
        with self._lock:
            if self.specs:
                self._turns.is_torn = True  # until all of them have been written
                self._turns.watch.begin()
                self._engine.run(LOAD_PROGRAM)
                self._turns.is_torn = False

    def set_hyper_parameters(
        self,
        values: Mapping[str, float] | None = None,
        /,
        *,
        group: str = "default",
        **named: float,
    ) -> None:
        """Change numbers of the optimizer, such as ``learning_rate``, from the next run on.

        Only those that were compiled as changeable can be; `TrainingSpec` lists them.

        Args:
            values: Numbers by name; they may also be given as keyword arguments.
            group: The group of tensors that they hold for.

        Raises:
            UsageError: there is no such number, or it is a constant; lists every problem.
        """
        from popc_runtime.state.variables import find_hyper_parameters

        chosen = find_hyper_parameters(self._manifest.training, {**(values or {}), **named}, group)
        with self._lock:
            for variable, value in chosen.items():
                for array in self._held(variable):
                    array[...] = value

    def save_checkpoint(
        self, path: str | os.PathLike[str], progress: Mapping[str, Any] | None = None
    ) -> None:
        """Write all variables and the state of the random numbers to one file, or nothing.

        What replicas share is written once.  Of a group of processes, all call this, and the first
        writes the file.

        Training goes on from a checkpoint exactly as it would have without the interruption.

        Args:
            path: The file; one that exists is replaced.
            progress: Plain data that `load_checkpoint` gives back.

        Raises:
            DeviceError: the last step did not come to its end, and has written some variables.
            ResourceError: the file cannot be written.
        """
        from popc_runtime.state.checkpoint import Checkpoint, write_checkpoint

        with self._lock:
            self._turns.check_whole()
            checkpoint = Checkpoint(
                tensors=self._values(self.specs),
                dtypes={spec.name: spec.dtype for spec in self.specs},
                model_sha256=self._manifest.model_sha256,
                random=self._engine.random.save(),
                progress=progress or {},
            )
        once(self._between.group, "a checkpoint", partial(write_checkpoint, path, checkpoint))

    def load_checkpoint(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Restore what `save_checkpoint` wrote; its ``progress``.

        Of a group of processes, all call this, and the first reads the file; how many processes
        had written it does not matter.

        Raises:
            CheckpointError: no checkpoint, damaged, or of another model or optimizer; lists every
                variable that does not fit.  Nothing has changed then.
            ResourceError: the file cannot be read.
        """
        from popc_runtime.state.checkpoint import content_of, read_checkpoint
        from popc_runtime.state.variables import check_checkpoint

        group = self._between.group
        content = None
        if group is not None:
            content = group.once("a checkpoint", lambda: content_of(path))
        checkpoint = read_checkpoint(path, content)
        check_checkpoint(checkpoint, self._manifest, str(path))
        with self._lock:
            try:
                self._engine.random.restore(checkpoint.random)
            except ValueError as error:
                raise CheckpointError(
                    f"the random numbers in {path} are damaged or belong to another program",
                    subject=str(path),
                    hint="compile the model as it was when the checkpoint was written",
                    details=(str(error),),
                ) from error
            for spec in self.specs:
                self._set(spec, checkpoint.tensors[spec.name])
            self._turns.is_torn = False
        return dict(checkpoint.progress)

    def random_state(self) -> Any:
        """The state of the device's random numbers: plain data for `set_random_state`.

        Of a group of processes, all call this together.
        """
        with self._lock:
            return self._engine.random.save()

    def set_random_state(self, state: Any) -> None:
        """Go on with the random numbers from where `random_state` was called.

        Raises:
            UsageError: it is damaged, or the state of another program.  Nothing has changed then.
        """
        with self._lock:
            try:
                self._engine.random.restore(state)
            except ValueError as error:
                raise UsageError(
                    "the random state is damaged or belongs to another program",
                    hint="pass what random_state() of this program returned, unchanged",
                    details=(str(error),),
                ) from error


def _differences(spec: VariableSpec, marks: Mapping[str, Sequence[bytes]]) -> Iterator[str]:
    """The fault of a variable, as a line of text; ``marks`` tell the values of each replica."""
    found = marks[spec.name]
    rows = spec.rows or (0,) * len(found)
    firsts = [rows.index(row) for row in rows]
    others = [number for number, first in enumerate(firsts) if found[number] != found[first]]
    if others:
        yield f"{spec}: replicas {', '.join(map(str, others))}"
