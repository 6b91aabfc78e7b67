"""Training in several processes, beside the same replicas in one: equal bit for bit."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import (
    DeviceError,
    GroupError,
    InputMismatchError,
    ResourceError,
    StreamUnderrunError,
    UsageError,
)
from popc_runtime.format import Array
from popc_runtime.groups import Group, run_loopback
from popc_runtime.trainer import Checkpoints, Trainer
from tests.replication.models import normalised, random_samples
from tests.training.small import data, linear_model, trainable

_SHARDED: Final[dict[str, Any]] = {
    "optimizer_state_tensor_location": {
        "replicated_tensor_sharding": True,
        "min_elements_for_replicated_tensor_sharding": 1,
    },
}
_MERGED: Final = {
    "merge_all_reduce_collectives": True,
    "prepare_schedule_for_merging_collectives": True,
}
_ADAM: Final = {"type": "adam", "learning_rate": 0.05}
_CLIPPED: Final = {**_ADAM, "clip_norm": [{"max_norm": 0.2}]}
_LAMB: Final = {"type": "lamb", "weight_decay": 0.1, "clip_norm": [{"max_norm": 0.2}]}
# Optimizer, options, whether in float16.
_PROGRAMS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], bool]]] = {
    "adam": (_ADAM, {"accumulation_factor": 2}, False),
    "sharded": (_ADAM, {**_SHARDED, "accumulation_factor": 2, "batches_per_step": 2}, False),
    "clipped": (_CLIPPED, {**_MERGED}, False),
    "sharded_clipped": (_LAMB, {**_SHARDED}, False),
    "half": ({"momentum": 0.9, "clip_norm": [{"max_norm": 0.2}]}, {**_SHARDED}, True),
    "pairs": (_ADAM, {"variable_settings": {"w": "orthogonal:2"}}, False),
    "mean": ({}, {"accumulation_and_replication_reduction_type": "mean"}, False),
}
_SAMPLES: Final = 64


def _half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in float16."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for weight in graph.initializer:
        array = numpy_helper.to_array(weight).astype(np.float16)
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return model


def _archive(
    folder: Path, optimizer: Mapping[str, Any] = _ADAM, *, half: bool = False, **options: Any
) -> Path:
    archive = popc.compile(
        _half(linear_model()) if half else linear_model(),
        dims={"batch": 2},
        train=trainable(**optimizer),
        options={"replicated_graph_count": 4, **options},
    )
    return archive.save(folder / "train.popx", force=True)


def _steps(
    path: Path, group: Group | None = None, engine: str = "auto", **settings: Any
) -> tuple[list[Array], dict[str, bytes]]:
    """The losses of the replicas of a process, and all variables."""
    program = popc_runtime.load(path, group=group, engine=engine, **settings)
    whole = popc_runtime.probe(path).inputs
    share = program.share
    dtype = program.inputs[0].dtype.storage
    samples = {name: array.astype(dtype) for name, array in data(_SAMPLES).items()}
    size = int(np.prod(whole[0].shape[:-1]))
    losses: list[Array] = []
    for first in range(0, _SAMPLES, size):
        feeds = {}
        for spec in whole:
            array = samples[spec.name][first : first + size].reshape(spec.shape)
            own = np.arange(4) if share is None else np.array(share.own)
            feeds[spec.name] = np.take(array, own, array.ndim - 3)
        losses.append(program.run(feeds)["loss"])
    program.state.check_equal_across_replicas()
    return losses, {name: value.tobytes() for name, value in program.state.read().items()}


@pytest.mark.parametrize("name", _PROGRAMS)
def test_processes_equal_replicas_of_one(name: str, tmp_path: Path) -> None:
    optimizer, options, half = _PROGRAMS[name]
    path = _archive(tmp_path, optimizer, half=half, **options)
    for engine, size in (("numpy", 2), ("native", 2), ("native", 4)):
        losses, variables = _steps(path, engine=engine)
        ranks = run_loopback(size, partial(_steps, path, engine=engine))
        assert all(found == variables for _, found in ranks)
        joined = [np.concatenate(parts, -1) for parts in zip(*(r[0] for r in ranks), strict=True)]
        np.testing.assert_array_equal(joined, losses)


def test_random_numbers_are_those_of_the_replicas(tmp_path: Path) -> None:
    """Each draws its own, also behind a checkpoint that other processes have written."""
    train = {"loss": {"type": "identity", "input": "loss"}, "optimizer": {"type": "sgd"}}
    archive = popc.compile(
        normalised(0.5),
        train=train,
        options={
            "replicated_graph_count": 4,
            "accumulation_and_replication_reduction_type": "mean",
            "distributed_batch_norm_replica_group_size": 4,
        },
    )
    path = archive.save(tmp_path / "train.popx")
    x = random_samples(16, (8, 3, 4)).reshape(4, 4, 8, 3, 4)
    kept = tmp_path / "kept.safetensors"

    def run(group: Group | None, *, first: bool) -> Array:
        program = popc_runtime.load(path, seed=5, group=group)
        own = slice(None) if program.share is None else np.array(program.share.own)
        if not first:
            program.state.load_checkpoint(kept)
        steps = x[:2] if first else x[2:]
        losses = [program.run({"x": step[own]})["loss"] for step in steps]
        if first:
            program.state.save_checkpoint(kept)
        return np.stack(losses)

    expected = [run(None, first=True), run(None, first=False)]
    assert len(np.unique(expected[0][0])) == 4
    for writers, readers in ((4, 2), (2, 4)):
        for size, first in ((writers, True), (readers, False)):
            found = run_loopback(size, partial(run, first=first))
            np.testing.assert_array_equal(np.concatenate(found, 1), expected[not first])


def test_training_goes_on_in_another_number_of_processes(tmp_path: Path) -> None:
    path = _archive(tmp_path, _ADAM, **_SHARDED)

    def train(group: Group | None, epochs: int, folder: str) -> tuple[list[float], bytes]:
        program = popc_runtime.load(path, group=group)
        kept = Checkpoints(tmp_path / folder)
        progress = kept.load(program) if kept.path("latest").exists() else None
        trainer = Trainer(program, data(_SAMPLES), seed=3, progress=progress)
        losses = [record.loss for record in trainer.run(epochs)]
        kept.save(program, "latest", trainer.progress)
        return losses, program.state.read()["w"].tobytes()

    expected, w = train(None, 6, "one")
    found: list[float] = []
    for size, epochs in ((4, 2), (2, 4), (1, 6)):
        ranks = run_loopback(size, partial(train, epochs=epochs, folder="several"))
        assert all(rank == ranks[0] for rank in ranks)
        found += ranks[0][0]
    assert found == expected
    assert ranks[0][1] == w


def test_checkpoints_that_cannot_be_read_fail_everywhere(tmp_path: Path) -> None:
    path = _archive(tmp_path)
    errors: list[str] = []

    def load(group: Group) -> None:
        program = popc_runtime.load(path, group=group)
        for attempt in (
            lambda: program.state.load_checkpoint(tmp_path / "none"),
            lambda: program.state.save_checkpoint(tmp_path / "no" / "folder"),
        ):
            with pytest.raises(ResourceError) as caught:
                attempt()
            errors.append(str(caught.value))

    run_loopback(2, load)
    assert len(errors) == 4
    assert len(set(errors)) == 2


def test_broadcast_inputs_are_given_to_every_process(tmp_path: Path) -> None:
    path = _archive(tmp_path, replicated_stream_mode={"target": "broadcast"})
    samples = data(8)
    target = samples["target"][:2]
    expected = popc_runtime.load(path).run({"x": samples["x"].reshape(4, 2, 4), "target": target})

    def run(group: Group) -> Array:
        program = popc_runtime.load(path, group=group)
        assert [spec.shape for spec in program.inputs] == [(2, 2, 4), (2, 3)]
        x = samples["x"].reshape(2, 2, 2, 4)[group.rank]
        return program.run({"x": x, "target": target})["loss"]

    np.testing.assert_array_equal(np.concatenate(run_loopback(2, run)), expected["loss"])


# -- mistakes --------------------------------------------------------------------------------------


def test_what_processes_load_must_be_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / "a.popx", tmp_path / "b.popx"]
    for path, rate in zip(paths, (0.1, 0.2), strict=True):
        _archive(tmp_path, {"learning_rate": rate}).rename(path)
    with pytest.raises(UsageError, match="differ in what they load") as caught:
        run_loopback(2, lambda g: popc_runtime.load(paths[g.rank], group=g, seed=g.rank))
    assert [line.partition(":")[0] for line in caught.value.details] == ["archive", "seed"]
    assert "0 on rank 0; 1 on rank 1" in caught.value.details[1]
    with pytest.raises(UsageError, match="4 replicas, which 3 processes") as caught:
        run_loopback(3, lambda group: popc_runtime.load(paths[0], group=group))
    assert "1 or 2 or 4 processes" in caught.value.hint
    engines = ("numpy", "native")
    with pytest.raises(UsageError, match="differ in the engine"):
        run_loopback(2, lambda g: popc_runtime.load(paths[0], group=g, engine=engines[g.rank]))


def test_what_processes_train_with_must_be_the_same(tmp_path: Path) -> None:
    path = _archive(tmp_path)

    def train(group: Group, samples: Any, seeds: tuple[int, int]) -> None:
        program = popc_runtime.load(path, group=group)
        Trainer(program, samples[group.rank], seed=seeds[group.rank])

    same = data(16)
    other = {**same, "target": same["target"] + 1}
    with pytest.raises(UsageError, match="differ in how they train") as caught:
        run_loopback(2, partial(train, samples=[same, other], seeds=(0, 1)))
    assert [line.partition(":")[0] for line in caught.value.details] == ["seed", "data target"]
    with pytest.raises(InputMismatchError, match="input 'x' is missing"):
        run_loopback(2, partial(train, samples=[same, {"target": same["target"]}], seeds=(0, 0)))


@pytest.mark.parametrize(
    ("what", "own", "others"),
    [
        ("data", StreamUnderrunError, r"rank 1 of 2 goes no further: StreamUnderrunError: stream"),
        ("error", ValueError, r"rank 1 of 2 goes no further: ValueError: no good"),
        ("end", GroupError, r"rank 1 at 'the end of the program'"),
        ("other", GroupError, r"but rank 1 at 'the marks of variables'"),
    ],
)
def test_all_end_when_one_goes_another_way(
    what: str, own: type[Exception], others: str, tmp_path: Path
) -> None:
    path = _archive(tmp_path)
    told: list[str] = []

    def steps(group: Group) -> None:
        program = popc_runtime.load(path, group=group)
        x, target = (
            data(40)[name].reshape(-1, 2, size) for name, size in (("x", 4), ("target", 3))
        )
        count = 4 if what == "data" and group.rank == 1 else 20
        with program.session() as session:
            session.connect("x", x[:count]).connect("target", target).connect("loss", [])
            for step in range(6):
                if step == 2 and group.rank == 1 and what != "data":
                    _go_another_way(what, program)
                    if what == "end":
                        return
                session.step()

    def run(group: Group) -> None:
        try:
            steps(group)
        except GroupError as error:
            told.append(str(error))
            raise

    with pytest.raises((own, GroupError)):
        run_loopback(2, run)
    assert any(re.search(others, text) for text in told), told


def _go_another_way(what: str, program: popc_runtime.Executable) -> None:
    if what == "error":
        raise ValueError("no good")
    if what == "other":
        program.state.check_equal_across_replicas()


def test_replicas_that_differ_are_named(tmp_path: Path) -> None:
    path = _archive(tmp_path)

    def run(group: Group) -> None:
        program = popc_runtime.load(path, group=group)
        if group.rank == 1:
            program._engine.replicas[1].variables["w"][0, 0] += 1
        with pytest.raises(DeviceError, match="differ between replicas") as caught:
            program.state.check_equal_across_replicas()
        assert caught.value.details == ("w: float32[4,3]: replicas 3",)

    run_loopback(2, run)


def test_an_executable_of_a_group_cannot_be_copied(tmp_path: Path) -> None:
    path = _archive(tmp_path)

    def run(group: Group) -> None:
        with pytest.raises(UsageError, match="neither copied nor pickled"):
            copy.copy(popc_runtime.load(path, group=group))

    run_loopback(2, run)


def test_exceptions_of_numbers_are_told_of_all_processes(tmp_path: Path) -> None:
    """An infinite operand anywhere excuses infinite sums everywhere, as in one process."""
    path = _archive(tmp_path, {"learning_rate": 1e-9})
    samples = data(8)

    def run(group: Group | None, x: Array) -> str:
        program = popc_runtime.load(path, group=group, floating_point_checks=["overflow"])
        own = slice(None) if program.share is None else np.array(program.share.own)
        target = samples["target"].reshape(4, 2, 3)
        try:
            program.run({"x": x[own], "target": target[own]})
        except GroupError:
            return "another"
        except DeviceError as error:
            return error.subject
        return "none"

    x = samples["x"].reshape(4, 2, 4)
    infinite, large = x.copy(), x.copy()
    infinite[3, 0, 0] = np.inf
    large[3, 0, 0] = 1e30
    for case in (x, infinite, large):
        expected = run(None, case)
        found = run_loopback(2, partial(run, x=case))
        assert set(found) - {"another"} == {expected}
