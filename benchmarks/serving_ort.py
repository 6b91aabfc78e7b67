"""The same server around onnxruntime: python -m benchmarks.serving_ort NAME=MODEL."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from popc_runtime.errors import InputMismatchError
from popc_runtime.format import Array, DType, TensorSpec
from popc_runtime.serving.__main__ import main
from popc_runtime.serving.models import Batching
from popc_runtime.serving.settings import ModelSource, ServeSettings

_MOST = 64  # samples of a run, as many as the archive's largest program


class OnnxRuntimeModel:
    """See `ServedModel`: an ONNX model with a batch in front of all inputs and outputs."""

    platform = "onnx_onnxv1"
    optional: tuple[str, ...] = ()

    def __init__(self, source: ModelSource, settings: ServeSettings) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.worker_threads()
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(source.path, options)
        self.inputs = self._specs(self._session.get_inputs())
        self.outputs = self._specs(self._session.get_outputs())
        names = [spec.name for spec in self.inputs], [spec.name for spec in self.outputs]
        self.batching = Batching(dict.fromkeys(names[0], 0), dict.fromkeys(names[1], 0), _MOST)

    @staticmethod
    def _specs(tensors: object) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(
                each.name,
                DType.FLOAT32,
                tuple(size if isinstance(size, int) else -1 for size in each.shape),
            )
            for each in tensors  # type: ignore[attr-defined]
        )

    def prepared(self, arrays: dict[str, Array]) -> Mapping[str, Array]:
        """See `ServedModel`."""
        return arrays

    def run(self, arrays: Mapping[str, Array], timeout: float | None) -> dict[str, Array]:
        """See `ServedModel`; nothing stops a run of onnxruntime."""
        del timeout
        names = [spec.name for spec in self.outputs]
        try:
            found = self._session.run(names, dict(arrays))
        except InvalidArgument as error:
            raise InputMismatchError(f"no program takes this: {error}") from error
        return dict(zip(names, found, strict=True))

    def close(self) -> None:
        """See `ServedModel`."""


if __name__ == "__main__":
    from benchmarks.serving_ort import OnnxRuntimeModel as Loader  # by a name that workers know

    sys.exit(main(loader=Loader))
