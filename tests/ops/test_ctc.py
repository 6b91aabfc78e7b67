"""CTC: the loss against a sum over all paths, decoding against a search with dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popc
from popc.ir import TensorType
from popc.ops.build import infer_types
from popc.popart import Builder
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import ctc
from tests.support.oracles import epsilon, run_ir, run_op
from tests.support.recorded import Answers, Pytorch

_DOMAIN = "ai.graphcore"


def _logs(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    scores = np.random.default_rng(seed).normal(size=shape) * 2
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return np.asarray(logs, dtype)


def _collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(label for label, _ in groupby(path) if label != blank)


def _paths(logs: Array) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every path through [T, C] with its probability."""
    steps, classes = logs.shape
    for path in product(range(classes), repeat=steps):
        yield path, float(np.exp(sum(logs[time, label] for time, label in enumerate(path))))


def _loss(logs: Array, labels: Array, blank: int) -> float:
    wanted = tuple(labels.tolist())
    total = sum(p for path, p in _paths(logs) if _collapsed(path, blank) == wanted)
    return float(-np.log(total)) if total else np.inf


# -- loss ------------------------------------------------------------------------------------------

LABELS = np.array([[1, 1, 2], [2, 1, 9], [0, 9, 9], [9, 9, 9]])
COUNTS = np.array([3, 2, 1, 0])
ENDS = np.array([5, 3, 4, 2])


def _expected(logs: Array, blank: int, labels: Array = LABELS) -> Array:
    losses = [
        _loss(logs[: ENDS[n], n].astype(np.float64), labels[n, : COUNTS[n]], blank)
        for n in range(len(labels))
    ]
    return np.array(losses)


@pytest.mark.parametrize("reduction", ["NoReduction", "Sum", "Mean"])
@pytest.mark.parametrize(("blank", "labels"), [(3, LABELS), (0, np.where(LABELS == 0, 3, LABELS))])
@pytest.mark.parametrize("integers", [np.int32, np.int64, np.uint32])
def test_loss_is_that_of_all_paths(
    reduction: str, blank: int, labels: Array, integers: Any
) -> None:
    logs = _logs(5, 4, 4)
    operands = [logs, *(array.astype(integers) for array in (labels, ENDS, COUNTS))]
    attributes = {"reduction": reduction, "blank": blank}
    (loss,) = run_op("Ctc", operands, attributes, domain=_DOMAIN)
    losses = _expected(logs, blank, labels)
    expected = {
        "NoReduction": losses,
        "Sum": losses.sum(),
        "Mean": (losses / np.maximum(COUNTS, 1)).mean(),
    }
    np.testing.assert_allclose(loss, expected[reduction], rtol=1e-5)


def test_a_blank_is_counted_from_the_end_where_it_is_negative() -> None:
    logs = _logs(5, 4, 4)
    for blank in (3, -1):
        attributes = {"reduction": "NoReduction", "blank": blank}
        operands = [logs, LABELS, ENDS, COUNTS]
        (loss,) = run_op("Ctc", operands, attributes, domain=_DOMAIN)
        np.testing.assert_allclose(loss, _expected(logs, 3), rtol=1e-5)
    decoded = [
        run_op("CtcBeamSearchDecoder", [logs, ENDS], {"blank": blank}, outputs=3, domain=_DOMAIN)
        for blank in (3, -1)
    ]
    for first, second in zip(*decoded, strict=True):
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ModelError, match="the blank is class -1, but there are 4 classes"):
        run_op("Ctc", [logs, LABELS, ENDS, COUNTS], {"blank": -5}, domain=_DOMAIN)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_element_types(dtype: Any) -> None:
    logs = _logs(5, 4, 4, dtype=dtype)
    (loss,) = run_op(
        "Ctc", [logs, LABELS, ENDS, COUNTS], {"reduction": "NoReduction", "blank": 3},
        domain=_DOMAIN,
    )  # fmt: skip
    np.testing.assert_allclose(
        loss.astype(np.float64), _expected(logs.astype(np.float64), 3), rtol=2 * epsilon(dtype)
    )


@pytest.mark.parametrize(("number", "dtype"), [(0, np.float16), (1, np.float32), (10, np.float16)])
def test_element_type_of_the_result(number: int, dtype: Any) -> None:
    logs = _logs(5, 4, 4, dtype=np.float16)
    operands = [logs, LABELS, ENDS, COUNTS]
    attributes = {"blank": 3, "outDataType": number, "reduction": "Sum"}
    (loss,) = run_op("Ctc", operands, attributes, domain=_DOMAIN)
    assert loss.dtype == dtype
    expected = _expected(logs.astype(np.float64), 3).sum()
    np.testing.assert_allclose(loss, expected, rtol=epsilon(dtype) * 2)


def test_the_gradient_of_popart_is_not_missed_unless_it_is_read() -> None:
    builder = Builder()
    logs = builder.addInputTensor("FLOAT", [5, 2, 4])
    sizes = [builder.addInputTensor("UINT32", shape) for shape in ([2, 3], [2], [2])]
    loss = builder.aiGraphcore.ctcloss([logs, *sizes])
    builder.addOutputTensor(loss)
    assert builder.getTensorShape(loss) == []
    popc.compile(builder.getModelProto())
    builder.addOutputTensor(builder.aiOnnx.relu([loss.replace(":0", ":1")]))
    with pytest.raises(ModelError, match="second output is not available"):
        popc.compile(builder.getModelProto())


def _gradients(logs: Array, *operands: Array, **attributes: Attribute) -> tuple[Array, Array]:
    loss, gradient = run_ir(
        "Ctc",
        [logs, *operands],
        {"reduction": "none", "blank": 0, "gradient": 1, **attributes},
    )
    return loss, gradient


def test_samples_without_a_path_have_no_gradient() -> None:
    logs = _logs(3, 3, 3)
    labels = np.array([[1, 1, 1], [1, 2, 1], [1, 2, 1]])
    operands = [labels, np.array([3, 3, 0]), np.array([2, 3, 0])]
    for zero_infinity in (0, 1):
        loss, gradient = _gradients(logs, *operands, zero_infinity=zero_infinity)
        assert (gradient[:, 2] == 0).all()
        assert loss[2] == 0
        assert np.isfinite(loss[:2]).all()
    operands[2] = np.array([3, 2, 1])  # 1, 1, 1 needs five steps; a label needs one
    for zero_infinity, hopeless in ((0, np.inf), (1, 0.0)):
        loss, gradient = _gradients(logs, *operands, zero_infinity=zero_infinity)
        assert loss[[0, 2]].tolist() == [hopeless, hopeless]
        assert (gradient[:, [0, 2]] == 0).all()
        assert np.isfinite(loss[1])
        assert np.abs(gradient[:, 1]).sum() == pytest.approx(3)


def test_impossible_classes() -> None:
    half = np.log(0.5)
    logs = np.array([[[half, half, -np.inf]], [[-np.inf, half, half]]], np.float32)
    loss, gradient = _gradients(logs, np.array([[1]]), np.array([2]), np.array([1]))
    assert np.exp(-loss[0]) == pytest.approx(0.5)  # blank then 1, or 1 then 1
    np.testing.assert_allclose(gradient[:, 0], [[-0.5, -0.5, 0.0], [0.0, -1.0, 0.0]], atol=1e-6)


def test_blocks_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = _logs(20, 7, 6, dtype=np.float64).transpose(0, 1, 2)
    rng = np.random.default_rng(1)
    operands = [rng.integers(1, 6, (7, 4)), rng.integers(9, 21, 7), rng.integers(0, 5, 7)]
    whole = _gradients(logs, *operands)
    monkeypatch.setattr(ctc, "_BYTES", 3 * 20 * 9 * 8)
    for one, other in zip(whole, _gradients(logs, *operands), strict=True):
        np.testing.assert_array_equal(one, other)


def test_half_precision_gradient() -> None:
    logs = _logs(6, 2, 4, dtype=np.float16)
    operands = [np.array([[1, 2], [3, 3]]), np.array([6, 5]), np.array([2, 2])]
    _, exact = _gradients(logs.astype(np.float64), *operands)
    loss, gradient = _gradients(logs, *operands)
    assert loss.dtype == np.float16
    assert gradient.dtype == np.float16
    np.testing.assert_allclose(gradient, exact, atol=1e-3)


@pytest.mark.parametrize(
    ("labels", "ends", "counts", "message"),
    [
        ([[1, 4]], [3], [2], r"label 4 at \[0, 1\] is out of range for 4 classes"),
        ([[-1, 4]], [3], [1], r"label -1 at \[0, 0\] is out of range for 4 classes"),
        ([[1, 0]], [3], [2], r"label 0 at \[0, 1\] is reserved for the blank"),
        ([[1, 2]], [4], [2], "sample 0 has 4 time steps, but there is room for 3"),
        ([[1, 2]], [3], [-1], "sample 0 has -1 labels, but there is room for 2"),
    ],
)
def test_wrong_data(
    labels: list[list[int]], ends: list[int], counts: list[int], message: str
) -> None:
    with pytest.raises(IndexError, match=message):
        _gradients(_logs(3, 1, 4), *map(np.array, (labels, ends, counts)))


def test_nothing_to_do() -> None:
    loss, gradient = _gradients(
        _logs(0, 2, 3), np.zeros((2, 1), int), np.zeros(2, int), np.array([0, 0])
    )
    assert loss.tolist() == [0, 0]
    assert gradient.shape == (0, 2, 3)


def _in_torch(scores: Array, operands: Sequence[Array], reduction: str, zero: bool) -> Answers:  # noqa: FBT001
    import torch

    inputs = torch.tensor(scores, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        torch.log_softmax(inputs, 2),
        *map(torch.tensor, operands),
        reduction=reduction,
        zero_infinity=zero,
    )
    (gradient,) = torch.autograd.grad(loss.sum(), inputs)
    return {"loss": loss.detach().numpy(), "gradient": gradient.numpy()}


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_against_torch(reduction: str, zero_infinity: bool, pytorch: Pytorch) -> None:  # noqa: FBT001
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(30, 5, 8))
    labels, ends = rng.integers(1, 8, (5, 9)), rng.integers(20, 31, 5)
    counts = np.array([9, 1, 0, 4, 7])
    if zero_infinity:
        ends[0] = 5
    operands = [labels, ends, counts]
    expected = pytorch(lambda: _in_torch(scores, operands, reduction, zero_infinity))
    logs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    attributes = {"blank": 0, "gradient": 1, "zero_infinity": int(zero_infinity)}
    loss, gradient = run_ir("Ctc", [logs, *operands], {"reduction": reduction, **attributes})
    np.testing.assert_allclose(loss, expected["loss"], rtol=1e-9)
    if reduction == "none":  # the gradient is that of each loss; this is LogSoftmax's
        of_scores = gradient - np.exp(logs) * gradient.sum(axis=2, keepdims=True)
        np.testing.assert_allclose(of_scores, expected["gradient"], atol=1e-9)


# -- decoding --------------------------------------------------------------------------------------


def _searched(logs: Array, blank: int, width: int) -> list[tuple[tuple[int, ...], float]]:
    """Sequences of a beam of ``width`` and the logarithms of their probabilities, best first."""
    # Probabilities of the paths that end in a blank, and in a label.
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (1.0, 0.0)}
    for row in np.exp(logs.astype(np.float64)):
        following: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for labels, (in_blank, in_label) in beam.items():
            following[labels][0] += (in_blank + in_label) * row[blank]
            if labels:
                following[labels][1] += in_label * row[labels[-1]]
            for label in range(len(row)):
                if label == blank:
                    continue
                again = bool(labels) and labels[-1] == label
                before = in_blank if again else in_blank + in_label
                following[*labels, label][1] += before * row[label]
        ranked = sorted(following.items(), key=lambda item: -sum(item[1]))
        beam = {labels: (p[0], p[1]) for labels, p in ranked[:width]}
    return [(labels, float(np.log(sum(p)))) for labels, p in beam.items() if sum(p) > 0]


def _decode(
    logs: Array, ends: Array, blank: int, width: int, paths: int
) -> tuple[Array, list[list[tuple[int, ...]]]]:
    found, lengths, labels = run_op(
        "CtcBeamSearchDecoder",
        [logs, ends],
        {"blank": blank, "beam_width": width, "top_paths": paths},
        outputs=3,
        domain=_DOMAIN,
    )
    assert lengths.dtype == labels.dtype == np.uint32
    assert labels.shape == (*lengths.shape, len(logs))
    beyond = np.arange(len(logs)) >= lengths[..., None]
    assert (labels[beyond] == blank).all()
    sequences = [
        [tuple(labels[n, p, : lengths[n, p]].tolist()) for p in range(paths)]
        for n in range(len(ends))
    ]
    return found, sequences


@pytest.mark.parametrize(
    ("classes", "width", "paths"), [(4, 1, 1), (4, 3, 2), (4, 20, 20), (30, 5, 3), (30, 40, 4)]
)
@pytest.mark.parametrize("last_is_blank", [False, True])
def test_decoder(classes: int, width: int, paths: int, *, last_is_blank: bool) -> None:
    blank = classes - 1 if last_is_blank else 0
    logs = _logs(9, 4, classes, seed=width)
    ends = np.array([9, 6, 1, 8], np.uint32)
    found, sequences = _decode(logs, ends, blank, width, paths)
    for sample, end in enumerate(ends):
        expected = _searched(logs[:end, sample], blank, width)[:paths]
        assert sequences[sample][: len(expected)] == [labels for labels, _ in expected]
        scores = [score for _, score in expected]
        np.testing.assert_allclose(found[sample, : len(scores)], scores, rtol=1e-5)
        assert np.isneginf(found[sample, len(scores) :]).all()


def test_sequences_that_leave_the_beam_and_return() -> None:
    """Peaks that move make prefixes drop out while longer sequences stay."""
    rng = np.random.default_rng(8)
    for seed in range(20):
        logs = _logs(14, 1, 3, seed=seed) * rng.uniform(0.5, 4)
        _, sequences = _decode(logs, np.array([14], np.uint32), 0, 4, 4)
        assert sequences[0] == [labels for labels, _ in _searched(logs[:, 0], 0, 4)]


def test_a_wide_beam_finds_exact_probabilities() -> None:
    logs = _logs(4, 1, 3)
    found, (sequences,) = _decode(logs, np.array([4], np.uint32), 0, 200, 5)
    total: dict[tuple[int, ...], float] = defaultdict(float)
    for path, probability in _paths(logs[:, 0]):
        total[_collapsed(path, 0)] += probability
    best = sorted(total, key=lambda labels: -total[labels])[:5]
    assert sequences == best
    np.testing.assert_allclose(np.exp(found[0]), [total[labels] for labels in best], rtol=1e-5)


def test_equal_probabilities_keep_the_first_classes() -> None:
    logs = np.full((2, 1, 5), -np.log(5), np.float32)
    _, (sequences,) = _decode(logs, np.array([1], np.uint32), 0, 3, 3)
    assert sequences == [(), (1,), (2,)]


_LOGS, _INTEGERS = TensorType(DType.FLOAT32, (5, 2, 4)), TensorType(DType.INT32, (2,))


@pytest.mark.parametrize(
    ("attributes", "lengths", "message"),
    [
        ({"blank": 4, "beam_width": 3, "top_paths": 1}, _INTEGERS, "the blank is class 4"),
        ({"blank": 0, "beam_width": 3, "top_paths": 4}, _INTEGERS, "at most the beam width, 3"),
        ({"blank": 0, "beam_width": 3, "top_paths": 0}, _INTEGERS, "must be at least 1"),
        ({"blank": 0, "beam_width": 3, "top_paths": 1}, _LOGS, "not allowed here"),
        (
            {"blank": 0, "beam_width": 3, "top_paths": 1},
            _INTEGERS.with_shape((3,)),
            "do not fit a batch of 2",
        ),
    ],
)
def test_decoder_refusals(
    attributes: dict[str, Attribute], lengths: TensorType, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types("CtcBeamSearchDecoder", [_LOGS, lengths], attributes)


def test_decoder_checks_lengths() -> None:
    with pytest.raises(IndexError, match="sample 0 has 3 time steps, but there is room for 2"):
        _decode(_logs(2, 1, 3), np.array([3], np.uint32), 0, 2, 1)
