"""Synthetic data: programs that need no inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime.data.synthetic import synthetic_sample
from popc_runtime.errors import InputMismatchError, OptionError
from popc_runtime.format import DType, StreamDirection, StreamSpec, SyntheticData
from tests.support.models import affine, counter_loop, executable, expected_affine
from tests.training.small import linear_model, trainable

_MODES = tuple(mode.value for mode in SyntheticData)


@pytest.mark.parametrize("mode", _MODES)
def test_inputs_need_not_be_given(tmp_path: Path, mode: str) -> None:
    program = executable(affine(), tmp_path, synthetic_data_mode=mode)
    result = program.run()["y"]
    sample = synthetic_sample(program.stream("x"), 0)
    assert result == expected_affine(sample)
    assert (sample != 0).any() == (mode != "zeros")
    np.testing.assert_array_equal(program.run(x=np.ones((2, 3), np.float32))["y"], result)
    with pytest.raises(InputMismatchError):
        program.run(x=np.ones(3, np.float32))
    results: list[Any] = []
    with program.session() as session:
        session.connect("y", results).step(3)
    assert all((item == result).all() for item in results)
    with program.session() as session:
        session.connect("x", lambda _: pytest.fail("nobody asks for samples"), depth=2).step()


def test_the_seed_decides(tmp_path: Path) -> None:
    popc.compile(affine(), options={"synthetic_data_mode": "random_normal"}).save(
        tmp_path / "model.popx"
    )
    programs = [popc_runtime.load(tmp_path / "model.popx", seed=seed) for seed in (1, 1, 2)]
    first, again, other = (program.run()["y"] for program in programs)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    programs[2].set_seed(1)
    np.testing.assert_array_equal(programs[2].run()["y"], first)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("mode", list(SyntheticData))
def test_samples(mode: SyntheticData, dtype: DType) -> None:
    stream = StreamSpec("s", StreamDirection.INPUT, dtype, (40, 50), 1, synthetic=mode)
    sample = synthetic_sample(stream, 3)
    assert sample.dtype == dtype.storage
    assert sample.shape == (40, 50)
    if mode is SyntheticData.ZEROS or not dtype.is_float:
        assert not sample.any()
    elif dtype is not DType.BFLOAT16:
        mean, deviation = (0, 1) if mode is SyntheticData.RANDOM_NORMAL else (0.5, 12**-0.5)
        assert abs(sample.astype(np.float64).mean() - mean) < 0.1
        assert abs(sample.astype(np.float64).std() - deviation) < 0.1


def test_integers_stay_valid(tmp_path: Path) -> None:
    program = executable(counter_loop(), tmp_path, synthetic_data_mode="random_normal")
    assert set(program.run()) == {"pn", "qn"}


def test_training_with_replicas(tmp_path: Path) -> None:
    archive = popc.compile(
        linear_model(),
        dims={"batch": 2},
        train=trainable(),
        options={
            "synthetic_data_mode": "random_uniform",
            "replicated_graph_count": 2,
            "accumulation_factor": 2,
            "batches_per_step": 3,
        },
    )
    program = popc_runtime.load(archive.save(tmp_path / "train.popx"))
    losses = [float(program.run()["loss"].mean()) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_nothing_is_charged_for_transfers() -> None:
    plain = popc.estimate(affine())
    synthetic = popc.estimate(affine(), options={"synthetic_data_mode": "zeros"})
    assert plain.cycles.host > 0
    assert synthetic.cycles.host == 0
    assert synthetic.device_cycles == plain.device_cycles


def test_one_input_is_made_up_and_the_other_given(tmp_path: Path) -> None:
    archive = popc.compile(
        linear_model(), dims={"batch": 2}, options={"synthetic_streams": {"targ*": "random_normal"}}
    )
    program = popc_runtime.load(archive.save(tmp_path / "one.popx"))
    plain = popc_runtime.load(
        popc.compile(linear_model(), dims={"batch": 2}).save(tmp_path / "plain.popx")
    )
    x = np.ones((2, 4), np.float32)
    target = synthetic_sample(program.stream("target"), 0)
    assert target.any()
    expected = plain.run(x=x, target=target)
    np.testing.assert_array_equal(program.run(x=x)["loss"], expected["loss"])
    with pytest.raises(InputMismatchError, match="'x'"):
        program.run()


def test_single_streams_are_charged_or_not() -> None:
    def host(**options: Any) -> float:
        return popc.estimate(linear_model(), dims={"batch": 2}, options=options).cycles.host

    full, none = host(), host(synthetic_data_mode="zeros")
    inputs = host(synthetic_streams={"x": "zeros", "target": "zeros"})
    outputs = host(synthetic_data_mode="zeros", synthetic_streams={"x": "off", "target": "off"})
    assert none == 0 < inputs < full
    assert 0 < outputs < full
    with pytest.raises(OptionError, match="synthetic_streams names inputs or outputs"):
        host(synthetic_streams={"z": "zeros"})
    with pytest.raises(OptionError, match="with synthetic_streams = zeros nothing is transferred"):
        host(synthetic_streams={"x": "zeros"}, tile_sets={"x": "io"}, num_io_tiles=32)
