"""The parts of a session: the model, copies of all settings, and the program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import onnx

from popc import frontend
from popc.caching.keys import compiler_parts
from popc.cost import CostReport
from popc.frontend import LoadedModel
from popc.ir import TensorType
from popc.popart.anchor_arrays import StepSizes
from popc.popart.dataflow import DataFlow
from popc.popart.device_info import DeviceInfo
from popc.popart.engine_cache import (
    SavedProgram,
    find_program,
    folder_of,
    keep_program,
    model_parts,
    read_program,
    write_program,
)
from popc.popart.errors import (
    popart_exception,
    popart_runtime_error,
)
from popc.popart.graph_model import scalar_losses
from popc.popart.groups import VariableSettings
from popc.popart.inputs import InputShapeInfo
from popc.popart.listings import Listings
from popc.popart.loading import read_for_session
from popc.popart.logger import log, log_once
from popc.popart.model_names import all_names, needed_names, read_names
from popc.popart.op_errors import op_problem
from popc.popart.optimizer_table import optimizer_table
from popc.popart.optimizers import Optimizer
from popc.popart.option_enums import VirtualGraphMode
from popc.popart.options import SessionOptions
from popc.popart.out_of_memory import require_memory
from popc.popart.patterns import Patterns
from popc.popart.program import Program, info_of, load_program
from popc.popart.reading import as_popart_reads
from popc.popart.serialized_ir import serialized_ir
from popc.popart.session_options import (
    accumulation_of,
    options_of,
    replicas_of,
)
from popc.popart.session_training import training_of
from popc.popart.setup_checks import check_device, check_loss, check_setup, no_anchor
from popc.popart.shared_variables import on_one_replica, variable_settings
from popc.popart.shift_graphs import write_shift_graphs
from popc.popart.summary import costs_on, summary_of
from popc.popart.tensorinfo import _TensorInfoCore
from popc.progress import Snapshot
from popc_runtime import Executable
from popc_runtime.cache import claimed, key_of
from popc_runtime.errors import ModelError, OptionError, PopcError, UsageError

__all__ = ["Setup"]

_WORDS_PER_WORKER: Final = 4  # of 32 bits: the state of a worker's generator has 128
_GRADIENT: Final = "Gradient___"
_PREFIX: Final = "^[A-Za-z0-9]+___"
_STEPS: Final = "showExecutionSteps"
_AGAIN: Final = "OpToIdentity"  # of PopART's patterns, the one that drops ops which do nothing


@dataclass
class Setup:
    """A session without its state.

    Attributes:
        loaded: The model, which is known to be sound when it is compiled.
        flow: Batches per step, and anchors.
        device, options, patterns, name: As they were given; copies.
        loss, optimizer: How it trains; "" and ``None`` if it does not.
    """

    loaded: LoadedModel
    flow: DataFlow
    device: DeviceInfo
    options: SessionOptions
    patterns: Patterns
    name: str
    loss: str = ""
    optimizer: Optimizer | None = None
    was_loaded: bool = False
    _program: Program | None = None
    _saved: SavedProgram | None = None
    _archive: bytes = b""
    _known: Mapping[str, tuple[str, list[int]]] = field(default_factory=dict)  # of what was saved

    @classmethod
    def of(
        cls,
        source: bytes | str,
        flow: DataFlow,
        device: DeviceInfo,
        shapes: InputShapeInfo | None,
        patterns: Patterns | None,
        options: SessionOptions | None,
        name: str,
        *,
        loss: str = "",
        optimizer: Optimizer | None = None,
    ) -> Self:
        """Copies of what a session is given, checked one by one.

        Raises:
            popart_exception: something is wrong with them.
            PopcError: popc cannot read the model.
        """
        loaded = read_for_session(source, shapes)
        options = (options or SessionOptions()).copied()
        if not folder_of(options, device):
            loaded = frontend.load_model(loaded.proto, loaded.base_dir)
        patterns = (patterns or Patterns()).copied()
        if optimizer is None and not flow.nAnchors():
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        options.require_supported()
        patterns.require_mandatory()
        made = cls(loaded, flow, device, options, patterns, name, loss, optimizer)
        check_setup(made)
        return made

    # -- parts -----------------------------------------------------------------------------------

    @property
    def model(self) -> onnx.ModelProto:
        """The model as ONNX has it."""
        return self.loaded.proto

    @property
    def base(self) -> str:
        """The folder that its external data are relative to."""
        return self.loaded.base_dir

    @property
    def sizes(self) -> StepSizes:
        """The parts of a step."""
        return StepSizes(
            self.flow.batchesPerStep(), accumulation_of(self.options), replicas_of(self.options)
        )

    @property
    def shared(self) -> dict[str, VariableSettings]:
        """The settings of weights that have others than the default ones."""
        return variable_settings(self.model)

    @cached_property
    def unused_weights(self) -> set[str]:
        """Initializers that nothing reads."""
        names = {weight.name for weight in self.model.graph.initializer}
        return names - read_names(self.model.graph) - set(self.flow.anchors())

    @property
    def needed_inputs(self) -> set[str]:
        """Inputs, among other tensors, that a step asks for; PopART prunes the others."""
        anchors = (re.sub(_PREFIX, "", name) for name in self.flow.anchors())
        return needed_names(self.model.graph, (self.loss, *self.flow.anchors(), *anchors))

    @property
    def rng_words(self) -> int:
        """The length of the state of random numbers."""
        device = self.device
        workers = device.tilesPerIPU * device.numWorkerContexts
        return self.sizes.replicas * 2 * workers * _WORDS_PER_WORKER

    @property
    def is_random(self) -> bool:
        """True if seeds have an effect, as far as that is known yet."""
        return self._saved is not None or (self._program is not None and self._program.is_random)

    # -- the program -----------------------------------------------------------------------------

    @property
    def is_transformed(self) -> bool:
        """True if `transform` has nothing to do any more."""
        return self._program is not None

    def on_device(self, device: DeviceInfo, name: str) -> Self:
        """The same settings on another device, with the same program if that does as well."""
        other = replace(self, device=device, name=name)
        if other._kind_of_device() != self._kind_of_device():
            other._program, other._saved, other._archive = None, None, b""
        return other

    def transform(self) -> None:
        """Compile as far as no device is needed, unless the cache has the program.

        Raises:
            popart_exception, PopcError: what is wrong with the model or with settings.
        """
        settings = options_of(
            *(self.options, self.patterns, self.flow, self.device, self.model),
            trains=self.optimizer is not None,
        )
        training = None
        if self.optimizer is not None:
            table = self.optimizer_table()
            training = training_of(self.model, self.loss, table, self.unused_weights)
        self._program = Program(self._read, settings, self.flow.anchors(), training)
        folder = folder_of(self.options, self.device)
        if not folder:
            self._compile()
            return
        parts = self._parts()  # it takes a look at every node
        key = key_of(parts)
        with claimed(folder, key) as held:
            self._saved = find_program(folder, key)
            if self._saved is None:
                self._compile()
                keep_program(folder if held else "", self._to_save(self.archive(), key), parts)

    def _read(self) -> LoadedModel:
        """The model as popc is to compile it."""
        loaded = on_one_replica(self.loaded, self.shared, self.sizes.replicas)
        return as_popart_reads(loaded, self.options)

    def _compile(self) -> None:
        assert self._program is not None
        self._program.listings = Listings.of(self.options)
        if not self.loaded.sha256:
            self.loaded = frontend.load_model(self.model, self.base)
        try:
            self._program.transform()
        except (ModelError, OptionError, UsageError) as error:
            raise self._said(error) from error
        check_loss(self.loss, self.found_type(self.loss))
        for note in self._program.transform().model.notes:
            log_once("ir", note)
        folder = self.options.serializedPoprithmsShiftGraphsDir
        if folder:
            write_shift_graphs(folder, self._program.orders())
        if Snapshot.FINAL in self._program.listings.checkpoints:
            self._program.planned()

    def _said(self, error: PopcError) -> Exception:
        """An error of popc in PopART's words; the error itself if PopART has none."""
        unknown = isinstance(error, UsageError) and error.subject not in all_names(self.model)
        if unknown and error.subject in self.flow.anchors():
            return no_anchor(error.subject, self.model)
        automatic = self.options.virtualGraphMode is VirtualGraphMode.Auto
        if automatic and error.subject == "virtual_graph_mode":
            return popart_exception(
                f"[AutoVirtualGraph] Couldn't find enough splits: {error.message}"
            )
        text = op_problem(self.model, self.base)
        return popart_exception(text) if text else error

    def optimizer_table(self) -> dict[str, Any]:
        """The optimizer as popc's training file has it."""
        assert self.optimizer is not None
        scaling = self.options.automaticLossScalingSettings
        weights = [weight.name for weight in self.model.graph.initializer]
        return optimizer_table(self.optimizer, weights, scaling)

    def executable(self, seed: int) -> Executable:
        """The program, loaded.

        Raises:
            popart_exception: the device lacks the IPUs of a virtual graph.
            OutOfMemoryException: it lacks the memory.
        """
        check_device(self.options, self.device, self.model)
        if self._saved is None:
            assert self._program is not None
            engine_options = dict(self.options.engineOptions)
            require_memory(self._program, self.device, self.sizes.replicas, engine_options)
            return load_program(self.archive(), seed, self.options)
        self.was_loaded = True
        self._known = self._saved.infos
        return load_program(self._saved.archive, seed, self.options)

    def archive(self) -> bytes:
        """The program as an archive."""
        if not self._archive:
            assert self._program is not None
            self._archive = self._program.archive()
        return self._archive

    def costs(self) -> CostReport:
        """The costs of a run.

        Raises:
            poplar_exception, OptionError: see `costs_on`.
        """
        assert self._program is not None
        return costs_on(self._program.planned(), self.device)

    def summary(self) -> str:
        """The costs as text, and the steps of a run, if they are asked for."""
        assert self._program is not None
        steps = str(dict(self.options.reportOptions).get(_STEPS, "false")).lower() == "true"
        return summary_of(self.costs(), self._program.planned(), steps=steps)

    def serialized(self) -> str:
        """The ops in the order in which they run, as JSON."""
        program = self._program
        assert program is not None
        again = self.patterns.isPatternEnabled(_AGAIN)
        losses = {} if again else scalar_losses(self.model, self.base)
        return serialized_ir(program.orders(), program.planned().graph, self.options, losses)

    # -- files -----------------------------------------------------------------------------------

    def _key(self) -> str:
        return key_of(self._parts())

    def _parts(self) -> dict[str, Any]:
        """The settings that decide about the program."""
        assert self._program is not None
        return {
            "model": model_parts(self.loaded, self.model),
            "popc": compiler_parts(),
            "popart": {"loss": self.loss, "name": self.name, "device": self._kind_of_device()},
            "options": repr(self._program.options),
            "training": repr(self._program.training),
        }

    def _kind_of_device(self) -> str:
        """The properties of the device that a program may depend on."""
        device = self.device
        return f"{device.numIpus} {device.tilesPerIPU} {device.ipuVersion}"

    def _to_save(self, archive: bytes, key: str) -> SavedProgram:
        infos = {name: self.info(name) for name in self.ids()}
        known = {name: (info.data_type(), info.shape()) for name, info in infos.items()}
        return SavedProgram(key, archive, known)

    def save(self, path: Path) -> None:
        """Write the program to a file.

        Raises:
            PopcError: it cannot be compiled, or not be written.
        """
        saved = self._saved or self._to_save(self.archive(), self._key())
        write_program(path, saved)

    def load(self, path: Path) -> None:
        """Take the program of a file.

        Raises:
            popart_exception: it holds something else, or the program of another session.
        """
        found = read_program(path)
        if found.key != self._key():
            log("session", "WARN", f"{path} holds the program of another model or of other options")
        self._saved = found
        self.was_loaded = True

    # -- tensors ---------------------------------------------------------------------------------

    def _require_executable(self) -> None:
        if self._saved is not None and not self._known:
            raise popart_runtime_error(
                "There is no executatable. Try calling Session::prepareDevice first."
            )

    def info(self, name: str) -> _TensorInfoCore:
        """The type of a tensor.

        Raises:
            popart_exception: there is no such tensor.
        """
        self._require_executable()
        if name in self._known:
            return _TensorInfoCore(*self._known[name])
        found = self.found_type(name)
        if found is None:
            raise popart_exception(f"No Ir::Tensor with TensorId '{name}'")
        return info_of(found)

    def found_type(self, name: str) -> TensorType | None:
        """The type of a tensor that the program has had; ``None`` if there is none."""
        assert self._program is not None
        infos = self._program.infos
        if name in infos:
            return infos[name]
        base = re.sub(_PREFIX, "", name)
        return infos.get(base) if name.startswith(_GRADIENT) else None

    def ids(self) -> set[str]:
        """The names of all tensors."""
        self._require_executable()
        assert self._program is not None
        return set(self._known or self._program.infos)
