"""One archive for several shapes: what it holds, and that results are those of single ones."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import popc
import popc_runtime
from popc.frontend import tensors
from popc.ops import build
from popc.transforms import fold_channel_ops
from popc_runtime.errors import CorruptArchiveError, InputMismatchError, UsageError
from popc_runtime.format import ArchiveFile, FitMode, Manifest
from popc_runtime.format.serialization import Fields
from tests.support.models import affine

_HEADER = '<ir_version: 10, opset_import: ["" : 17]> '
_ENCODER = """encoder (int64[batch, length] ids) => (float[batch, 4] y) {
    x = Gather (words, ids)
    t = Transpose <perm = [0, 2, 1]> (x)
    s = MatMul (x, t)
    p = Softmax <axis = -1> (s)
    a = MatMul (p, x)
    h = MatMul (a, w)
    g = Relu (h)
    y = ReduceMean <axes = [1], keepdims = 0> (g)
}"""


def _encoder() -> onnx.ModelProto:
    model = parser.parse_model(_HEADER + _ENCODER)
    draw = np.random.default_rng(0)
    for name, shape in {"words": (50, 64), "w": (64, 4)}.items():
        array = draw.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _ids(batch: int, length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(batch * 100 + length).integers(0, 50, (batch, length))


SHAPES = [(batch, length) for batch in (1, 2, 4) for length in (5, 8)]


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_every_shape_has_the_results_of_its_own_archive(engine: str) -> None:
    model = _encoder()
    together = popc.compile(
        model, dims={"batch": [1, 2, 4], "length": [5, 8]}, options={"verify_ir": True}
    ).load(engine=engine)
    for batch, length in [*SHAPES, *reversed(SHAPES)]:
        ids = _ids(batch, length)
        alone = popc.compile(model, dims={"batch": batch, "length": length}).load(engine=engine)
        expected = alone(ids)["y"]
        np.testing.assert_array_equal(together(ids)["y"], expected)
        np.testing.assert_array_equal(np.asarray(together.run_buffers(ids=ids)["y"]), expected)
        chosen = together.program({"ids": (batch, length)})
        np.testing.assert_array_equal(chosen.run(ids=ids)["y"], expected)
        assert [spec.shape for spec in chosen.inputs] == [(batch, length)]
    assert together.stats().runs == 3 * 2 * len(SHAPES)


def test_weights_are_stored_once_and_the_arena_is_the_largest() -> None:
    model = _encoder()
    several = popc.compile(model, dims={"batch": [1, 2, 4, 8, 16], "length": 8})
    largest = popc.compile(model, dims={"batch": 16, "length": 8})
    assert several.manifest.memory["arena_bytes"] == largest.manifest.memory["arena_bytes"]
    assert several.manifest.memory["constant_bytes"] == largest.manifest.memory["constant_bytes"]
    assert several.size() < 1.1 * largest.size()
    assert len(several.manifest.variants) == 4


def test_weights_that_differ_in_a_single_element_are_told_apart() -> None:
    """Wherever it is; the first and the last are equal and stored once."""
    size = 3000
    model = parser.parse_model(
        f"{_HEADER} g (float[{size}] x) => (float[{size}] y) {{"
        "  a = Mul (x, w0)  b = Add (a, w1)  c = Mul (b, w2)  y = Add (c, w3) }"
    )
    weights = np.tile(np.random.default_rng(0).standard_normal(size).astype(np.float32), (4, 1))
    weights[1, 1234] += 1
    weights[2, 777] += 1
    for i, array in enumerate(weights):
        model.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    archive = popc.compile(model)
    assert 3 * weights[0].nbytes <= archive.manifest.memory["constant_bytes"] < weights.nbytes
    x = np.ones(size, np.float32)
    a, b, c, d = weights
    np.testing.assert_allclose(archive.load().run(x=x)["y"], (x * a + b) * c + d, rtol=1e-5)


def test_the_first_of_several_is_main_and_one_alone_is_as_before() -> None:
    model = affine("N", 3)
    alone = popc.compile(model, dims={"N": 2})
    assert popc.compile(model, dims={"N": [2]}).to_bytes() == alone.to_bytes()
    several = popc.compile(model, dims={"N": [2, 3]})
    assert several.manifest.inputs == alone.manifest.inputs
    assert [program.name for program in several.load().programs] == ["main", "main.2"]


def test_shapes_are_given_as_lists_too() -> None:
    shapes: Sequence[Mapping[str, Sequence[int]]] = [{"x": (1, 3)}, {"x": (5, 3)}]
    model = popc.compile(affine("N", 3), shapes=shapes).load()
    assert [program.inputs[0].shape for program in model.programs] == [(1, 3), (5, 3)]


@pytest.mark.parametrize("weights", ["compressed", "mmap"])
def test_a_file_serves_all_shapes_without_numpy(weights: str, tmp_path: Path) -> None:
    path = popc.compile(affine("N", 3), dims={"N": [1, 2]}, options={"weights": weights}).save(
        tmp_path / "model.popx"
    )
    model = popc_runtime.load(path)
    for count in (1, 2):
        x = np.ones((count, 3), np.float32)
        expected = model(x)["y"]
        for value in (x.tobytes(), x.data, x.reshape(-1)):
            found = model.run_buffers(x=value)["y"]
            assert found.data.tobytes() == expected.tobytes()


def test_bytes_that_fit_several_programs_are_refused() -> None:
    model = popc.compile(_encoder(), dims={"batch": [2, 4], "length": [4, 8]}).load()
    with pytest.raises(UsageError, match=r"could be those of main\.2, main\.3"):
        model.run_buffers(ids=bytes(2 * 8 * 8))


def test_shapes_that_there_are_not_are_refused_with_those_that_there_are() -> None:
    model = popc.compile(affine("N", 3), dims={"N": [1, 4]}).load()
    with pytest.raises(InputMismatchError) as caught:
        model(np.zeros((3, 3), np.float32))
    assert caught.value.message == "no program takes x: [3, 3]"
    assert caught.value.details == (
        "main takes x: float32[1,3]",
        "main.2 takes x: float32[4,3]",
    )
    with pytest.raises(InputMismatchError, match="there is no input 'z'"):
        model.run(z=np.zeros((1, 3), np.float32))
    with pytest.raises(InputMismatchError, match="expected float32"):
        model(np.zeros((4, 3)))
    with pytest.raises(UsageError, match="there is no program 'other'"):
        model.program("other")


def test_variables_are_the_same_for_all_programs() -> None:
    model = popc.compile(
        affine("N", 3), dims={"N": [1, 2]}, options={"constant_weights": False}
    ).load()
    model.state.write({"scale": np.zeros(3, np.float32)})
    offset = model.state.read()["offset"]
    for count in (1, 2):
        found = model(np.ones((count, 3), np.float32))["y"]
        np.testing.assert_array_equal(found, np.tile(offset, (count, 1)))
    model.program("main.2").state.reset()
    assert model.state.read()["scale"].any()


def test_sessions_and_profiles_are_of_one_program() -> None:
    model = popc.compile(affine("N", 3), dims={"N": [1, 2]}).load()
    samples = np.ones((3, 2, 3), np.float32)
    results: list[Any] = []
    with model.program("main.2").session() as session:
        session.connect("x", samples)
        session.connect("y", results.append)
        session.step(3)
    assert [result.shape for result in results] == [(2, 3)] * 3
    assert model.profile({"x": samples[0]})
    model.warmup()
    model.close()
    with pytest.raises(popc.PopcError, match="closed"):
        model.program("main.2").run(x=samples[0])


def test_replicas_and_cycles_of_several_programs() -> None:
    options = {"replicated_graph_count": 2, "instrument_with_hardware_cycle_counter": True}
    model = popc.compile(affine("N", 64), dims={"N": [1, 512]}, options=options).load()
    cycles = []
    for count in (1, 512, 1):
        model(np.ones((2, count, 64), np.float32))
        cycles.append(model.get_cycle_count())
    assert cycles[0] == cycles[2] < cycles[1]


def test_cycles_of_a_run_in_parts_are_those_of_all_parts() -> None:
    options = {"instrument_with_hardware_cycle_counter": True}
    archive = popc.compile(affine("N", 64), dims={"N": [1, 4]}, split=["N"], options=options)
    model = archive.load()
    cycles = {}
    for count in (1, 4, 6):
        model(np.ones((count, 64), np.float32))
        cycles[count] = model.get_cycle_count()
    assert cycles[6] == cycles[4] + 2 * cycles[1]
    report = model.execution_report()
    assert (report.runs, report.cycles) == (3, cycles[6])
    total = model.execution_report(total=True)
    assert (total.runs, total.cycles) == (5, cycles[1] + cycles[4] + cycles[6])
    assert model.program("main.2").get_cycle_count() == cycles[4]


def test_synthetic_inputs_are_those_of_each_program() -> None:
    options = {"synthetic_data_mode": "random_normal"}
    model = popc.compile(affine("N", 3), dims={"N": [1, 4]}, options=options).load(seed=3)
    for program, count in zip(model.programs, (1, 4), strict=True):
        alone = popc.compile(affine("N", 3), dims={"N": count}, options=options).load(seed=3)
        np.testing.assert_array_equal(program.run()["y"], alone.run()["y"])


def test_copies_of_a_program_are_that_program(tmp_path: Path) -> None:
    path = popc.compile(affine("N", 3), dims={"N": [1, 2]}).save(tmp_path / "model.popx")
    model = popc_runtime.load(path)
    assert copy.copy(model.program("main.2")).name == "main.2"
    assert len(copy.copy(model).programs) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "main.3"}, "describes a missing program"),
        ({"inputs": []}, ""),
        ({"streams": []}, "has no stream"),
        ({"name": 3}, "is missing or not of type str"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": [9, 9]}]}, "does not match"),
    ],
)
def test_hostile_manifests_are_refused(change: dict[str, Any], message: str) -> None:
    plain: Any = popc.compile(affine("N", 3), dims={"N": [1, 2]}).manifest.to_dict()
    plain["variants"][0] |= change
    if message:
        with pytest.raises(CorruptArchiveError, match=message):
            Manifest.from_fields(Fields(plain, "the manifest"))
    else:
        Manifest.from_fields(Fields(plain, "the manifest"))


def test_old_readers_are_told(tmp_path: Path) -> None:
    path = popc.compile(affine("N", 3), dims={"N": [1, 2]}).save(tmp_path / "model.popx")
    with ArchiveFile.open(path) as archive:
        assert archive.header.oldest_reader == 3
        assert archive.manifest.fits == ()


# -- other sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["split", "pad"])
@pytest.mark.parametrize("batch", [1, 3, 5, 7])
def test_batches_in_between(mode: str, batch: int) -> None:
    model = _encoder()
    dims = {"batch": [1, 2, 8], "length": [5, 8]}
    keywords: dict[str, Any] = {mode: ["batch"]}
    archive = popc.compile(model, dims=dims, **keywords)
    assert [fit.modes for fit in archive.manifest.fits] == [(FitMode(mode),)]
    together = archive.load()
    for length in (5, 8):
        ids = _ids(batch, length)
        expected = popc.compile(model, dims={"batch": batch, "length": length}).load()(ids)["y"]
        np.testing.assert_array_equal(together(ids)["y"], expected)
        found = together.run_buffers(ids=ids)["y"]
        np.testing.assert_array_equal(np.asarray(found), expected)
        out = np.zeros((batch, 4), np.float32)
        assert together.run({"ids": ids}, out={"y": out})["y"] is out
        np.testing.assert_array_equal(out, expected)


def test_only_splitting_goes_beyond_the_largest_size() -> None:
    x = np.ones((9, 3), np.float32)
    split = popc.compile(affine("N", 3), dims={"N": [1, 4]}, split=["N"]).load()
    assert split(x)["y"].shape == (9, 3)
    padded = popc.compile(affine("N", 3), dims={"N": [1, 4]}, pad=["N"]).load()
    with pytest.raises(InputMismatchError, match="no program takes") as caught:
        padded(x)
    assert "N may be smaller than a size that there is" in caught.value.hint
    both = popc.compile(affine("N", 3), dims={"N": [4]}, pad=["N"], split=["N"]).load()
    assert both(x)["y"].shape == (9, 3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{ y = Softmax <axis = 0> (x) }", "Softmax .*works along the batch"),
        ("{ y = ReduceMax <axes = [0]> (x) }", "ReduceMax .*puts samples together"),
        (
            (
                "{ s = Shape (x) i = Constant <value_ints = [0]> () n = Gather (s, i) "
                "f = Cast <to = 1> (n) y = Mul (x, f) }"
            ),
            "not computed the same way for all sizes: Mul",
        ),
        (
            (
                "{ s = Shape (x) i = Constant <value_int = 0> () n = Gather (s, i) "
                "k = Constant <value_int = 1> () r = Range (i, n, k) f = Cast <to = 1> (r) "
                "a = Constant <value_ints = [1]> () u = Unsqueeze (f, a) y = Add (x, u) }"
            ),
            "Add .*in another way than by sample",
        ),
        ("{ r = RandomNormalLike (x) y = Add (x, r) }", "RandomNormalLike|RandomNormal"),
        ("{ z = Constant <value_float = 0.0> () y = Transpose (x) }", ""),
    ],
)
@pytest.mark.parametrize("mode", ["split", "pad"])
def test_what_mixes_samples_is_refused(body: str, reason: str, mode: str) -> None:
    model = parser.parse_model(f"{_HEADER} g (float[N, 4] x) => (y) {body}")
    keywords: dict[str, Any] = {mode: ["N"]}
    if mode == "pad" and "Range" in body:  # what is added changes nothing of the rest
        archive = popc.compile(model, dims={"N": [2, 4]}, **keywords)
        found = archive.load()(np.zeros((3, 4), np.float32))["y"]
        np.testing.assert_array_equal(found[:, 0], [0, 1, 2])
        return
    if not reason:
        fit = popc.compile(model, dims={"N": [1, 4]}, **keywords).manifest.fits[0]
        assert fit.outputs == {"y": 1}
        return
    with pytest.raises(UsageError, match=reason):
        popc.compile(model, dims={"N": [1, 4]}, **keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"split": ["M"]}, "no input has a dimension of this name"),
        ({"split": "N"}, "split is 'N'"),
        ({"dims": {"N": []}}, "there is no size for 'N'"),
        ({"dims": {"N": [1, "2"]}}, "the size of 'N' is '2'"),
        ({"dims": {"N": range(1, 300)}}, "299 combinations"),
        ({"split": ["N"], "options": {"batches_per_step": 2}}, "batches_per_step is more than 1"),
        ({"dims": None, "shapes": [{"x": (1, 3)}], "pad": ["N"]}, "must be given by dims"),
    ],
)
def test_mistakes(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        popc.compile(affine("N", 3), **{"dims": {"N": [1, 2]}, **keywords})
    assert message in str(caught.value)


def _network() -> onnx.ModelProto:
    """A convolution with a normalisation, and a product with a matrix that has to be turned."""
    model = parser.parse_model(
        _HEADER
        + """network (float[batch, 32, 5, 5] x) => (float[batch, 160] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, kernel)
            n = BatchNormalization (c, scale, offset, mean, variance)
            f = Flatten (n)
            t = Transpose (matrix)
            y = MatMul (f, t)
        }"""
    )
    draw = np.random.default_rng(0)
    shapes = {"kernel": (64, 32, 3, 3), "matrix": (160, 1600)}
    shapes |= dict.fromkeys(("scale", "offset", "mean", "variance"), (64,))
    for name, shape in shapes.items():
        array = draw.uniform(0.5, 1, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_work_on_weights_is_done_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    work: Counter[str] = Counter()

    def count(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def counted(*arguments: Any) -> Any:
            result = original(*arguments)
            work[name] += (
                max(part.nbytes for part in result if not isinstance(part, str)) >= 1 << 16
            )
            return result

        monkeypatch.setattr(module, name, counted)

    count(tensors, "_decoded")
    count(build, "_evaluate")
    count(fold_channel_ops, "_scaled")
    model = _network()
    single = popc.compile(model, dims={"batch": 4})
    alone = dict(work)
    work.clear()
    together = popc.compile(model, dims={"batch": [4, 1, 2, 8, 16]})
    assert alone == dict(work) == {"_decoded": 2, "_evaluate": 1, "_scaled": 1}
    x = np.ones((4, 32, 5, 5), np.float32)
    np.testing.assert_array_equal(together.load()(x)["y"], single.load()(x)["y"])
