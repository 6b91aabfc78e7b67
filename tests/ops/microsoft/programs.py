"""Operators of com.microsoft as whole programs: some become loops, which kernels cannot run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.compiling import CHECKED
from tests.support.oracles import one_node_model, run_onnxruntime

__all__ = ["ENGINES", "Compare", "floats", "run_program"]

ENGINES: Final = ("native", "numpy")
_DOMAIN: Final = "com.microsoft"


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Random numbers of a modest size."""
    drawn: Array = np.random.default_rng([seed, *shape]).normal(size=shape) / 2
    return drawn.astype(dtype)


def run_program(
    model: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path
) -> list[list[Array]]:
    """The results of ``model``, by each engine."""
    path = popc.compile(model, options=CHECKED).save(folder / "model.popx", force=True)
    return [list(popc_runtime.load(path, engine=engine).run(feeds).values()) for engine in ENGINES]


class Compare:
    """popc's and onnxruntime's results for one operator of com.microsoft."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self,
        op_type: str,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        constants: Collection[int] = (),
        tolerance: float = 1e-5,
    ) -> list[Array]:
        """Assert that types, shapes and values agree; returns onnxruntime's results.

        ``tolerance`` is relative to the largest number of a result.
        """
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        model = one_node_model(
            op_type, trimmed, attributes, outputs=outputs, constants=constants, domain=_DOMAIN
        )
        feeds = {
            f"x{i}": array
            for i, array in enumerate(trimmed)
            if array is not None and i not in constants
        }
        expected = run_onnxruntime(model, feeds)
        for results in run_program(model, feeds, self._folder):
            for actual, wanted in zip(results, expected, strict=True):
                assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
                largest = float(np.abs(wanted).max(initial=0)) if wanted.dtype.kind == "f" else 0.0
                np.testing.assert_allclose(
                    actual.astype(np.float64),
                    wanted.astype(np.float64),
                    rtol=0,
                    atol=tolerance * largest,
                )
        return expected
