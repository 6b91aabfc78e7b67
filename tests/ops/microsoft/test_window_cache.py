"""GroupQueryAttention whose caches hold a window of keys, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import floats, run_program
from tests.support.oracles import epsilon, one_node_model, run_onnxruntime, run_op

_DOMAIN: Final = "com.microsoft"


def _operands(
    rows: int, capacity: int, lengths: tuple[int, ...], dtype: type = np.float32
) -> list[Array | None]:
    """Operands 0 to 8 for samples with so many keys in all."""
    batch = len(lengths)
    wide = [floats(batch, rows, n * 16, seed=n, dtype=dtype) for n in (4, 2, 2)]
    caches = [floats(batch, 2, capacity, 16, seed=n, dtype=dtype) for n in (3, 4)]
    angles = floats(32, 8, seed=9)
    tables: list[Array] = [np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)]
    counts = [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]
    return [*wide, *caches, *counts, *tables]


def _attributes(window: int) -> dict[str, Any]:
    heads = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    return {**heads, "local_window_size": window, "sliding_window_cache": 1}


def _held(length: int, capacity: int, window: int) -> int:
    """How many keys a cache holds, as the operator's description has it; behind them is anything.

    Whenever there are more than there is room for, as many leave as there is room beyond a window.
    """
    block = capacity - window + 1
    while length > capacity:
        length -= block
    return length


@pytest.mark.parametrize(
    ("dtype", "constants"),
    [
        pytest.param(np.float32, (6,), id="float32"),
        pytest.param(np.float16, (6,), id="float16"),
        pytest.param(np.float32, (), id="length-at-run-time"),
    ],
)
@pytest.mark.parametrize(
    ("rows", "capacity", "window", "lengths"),
    [
        pytest.param(1, 4, 4, (7, 5), id="token-into-a-window"),
        pytest.param(1, 6, 4, (9, 8), id="token-into-a-larger-cache"),
        pytest.param(1, 6, 4, (7, 6), id="one-sample-full"),
        pytest.param(1, 8, 3, (8, 3), id="none-full"),
        pytest.param(1, 4, 4, (1, 1), id="first-token"),
        pytest.param(3, 6, 4, (9,), id="tokens"),
        pytest.param(9, 6, 4, (12,), id="more-tokens-than-room"),
        pytest.param(2, 8, 3, (20,), id="after-many"),
        pytest.param(3, 6, 4, (3, 3), id="short-prompt"),
        pytest.param(7, 6, 4, (7, 7), id="prompt-beyond-the-room"),
    ],
)
def test_window(
    rows: int,
    capacity: int,
    window: int,
    lengths: tuple[int, ...],
    dtype: type,
    constants: tuple[int, ...],
    tmp_path: Path,
) -> None:
    operands = _operands(rows, capacity, lengths, dtype)
    feeds = {f"x{i}": x for i, x in enumerate(operands) if x is not None and i not in constants}
    model = one_node_model(
        "GroupQueryAttention",
        operands,
        _attributes(window),
        outputs=3,
        constants=constants,
        domain=_DOMAIN,
    )
    expected = run_onnxruntime(model, feeds)
    for y, *caches in run_program(model, feeds, tmp_path):
        _assert_close(y, expected[0])
        for found, wanted in zip(caches, expected[1:], strict=True):
            assert found.shape == wanted.shape
            for sample, length in enumerate(lengths):
                held = _held(length, capacity, window)
                _assert_close(found[sample, :, :held], wanted[sample, :, :held])


def _assert_close(found: Array, wanted: Array) -> None:
    tolerance = 16 * epsilon(wanted.dtype)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found.astype(np.float64),
        wanted.astype(np.float64),
        rtol=0,
        atol=tolerance * float(np.abs(wanted).max()),
    )


@pytest.mark.parametrize(
    ("capacity", "window", "bias", "said"),
    [
        pytest.param(3, 4, None, "size is 4 and the cache has room for 3", id="too-small"),
        pytest.param(4, -1, None, "size is -1 and the cache has room for 4", id="no-window"),
        pytest.param(
            4, 4, floats(1, 1, 1, 7), "a cache of 4 of 7 keys goes with neither a bias", id="bias"
        ),
    ],
)
def test_what_goes_with_no_window(
    capacity: int, window: int, bias: Array | None, said: str
) -> None:
    operands = [*_operands(1, capacity, (7,)), None, bias]
    while operands[-1] is None:
        operands.pop()
    with pytest.raises(ModelError, match=said):
        run_op(
            "GroupQueryAttention",
            operands,
            _attributes(window),
            outputs=3,
            constants=(6,),
            domain=_DOMAIN,
        )
