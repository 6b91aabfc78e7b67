from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from popc.frontend import Bindings
from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array
from tests.support.oracles import (
    assert_matches_onnxruntime,
    import_graph,
    one_node_model,
    run_ir,
    run_op,
)

_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _grid(*shape: int) -> Array:
    """Positions of which a good part lies outside."""
    return _RNG.uniform(-2.6, 2.6, shape).astype(np.float32)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_grid_sample_4d(
    mode: str, padding: str, align_corners: int, constants: tuple[int, ...]
) -> None:
    assert_matches_onnxruntime(
        "GridSample",
        [_normal(2, 3, 5, 7), _grid(2, 4, 6, 2)],
        {"mode": mode, "padding_mode": padding, "align_corners": align_corners},
        opset=16,
        constants=constants,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_5d(mode: str, padding: str, align_corners: int) -> None:
    assert_matches_onnxruntime(
        "GridSample",
        [_normal(2, 2, 4, 5, 3), _grid(2, 3, 2, 4, 3)],
        {"mode": mode, "padding_mode": padding, "align_corners": align_corners},
        opset=20,
        rtol=1e-4,
        atol=1e-4,
    )


def test_grid_sample_in_one_dimension() -> None:
    x, grid = _normal(1, 2, 5), np.linspace(-1, 1, 9, dtype=np.float32).reshape(1, 9, 1)
    (y,) = run_op("GridSample", [x, grid], {"mode": "linear", "align_corners": 1}, opset=20)
    wanted = [np.interp(np.linspace(0, 4, 9), np.arange(5), row) for row in x[0]]
    np.testing.assert_allclose(y[0], wanted, rtol=1e-5, atol=1e-6)


def test_grid_sample_blocks_and_strides() -> None:
    x, grid = _normal(1, 300, 9, 10)[:, ::2, :, ::2], _grid(1, 40, 50, 2)
    attributes: dict[str, Any] = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    (y,) = run_ir("GridSample", [x, grid], attributes)
    parts = [run_ir("GridSample", [x[:, c : c + 1], grid], attributes)[0] for c in range(150)]
    np.testing.assert_array_equal(y, np.concatenate(parts, axis=1))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.uint8, np.int32])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_types(dtype: Any, mode: str) -> None:
    x = (_normal(1, 2, 4, 4) * 50).astype(dtype)
    grid = _grid(1, 3, 3, 2)
    (y,) = run_op("GridSample", [x, grid], {"mode": mode}, opset=22)
    (exact,) = run_op("GridSample", [x.astype(np.float64), grid], {"mode": mode}, opset=22)
    assert y.dtype == dtype
    wanted = exact if np.dtype(dtype).kind == "f" else np.trunc(exact)
    np.testing.assert_allclose(y, wanted, rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-3)


def test_positions_that_are_not_numbers_do_no_harm() -> None:
    grid = np.array([np.nan, np.inf, -np.inf, 0, 0, np.nan], np.float32).reshape(1, 1, 3, 2)
    for mode in ("nearest", "linear", "cubic"):
        (y,) = run_op("GridSample", [_normal(1, 1, 3, 3), grid], {"mode": mode}, opset=20)
        assert y.shape == (1, 1, 1, 3)


@pytest.mark.parametrize(
    ("x", "grid", "message"),
    [
        ((1, 1, 3, 3), (1, 2, 2, 3), "must have the shape"),
        ((1, 1, 3, 3), (2, 2, 2, 2), "batch sizes 1 and 2 differ"),
        ((1, 1, 0, 3), (1, 2, 2, 2), "nothing to sample"),
    ],
)
def test_grid_sample_refuses_grids_that_do_not_fit(
    x: tuple[int, ...], grid: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("GridSample", [_normal(*x), _grid(*grid)], opset=20)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize(
    "size",
    [(2, 3, 4, 5), (1, 3, 4, 5), (1, 1, 1, 1), (3, 1, 2, 1), (1, 2, 3, 4, 5), (2, 1, 1, 3, 1)],
)
def test_affine_grid(size: tuple[int, ...], align_corners: int) -> None:
    dimensions = len(size) - 2
    assert_matches_onnxruntime(
        "AffineGrid",
        [_normal(size[0], dimensions, dimensions + 1), np.array(size, np.int64)],
        {"align_corners": align_corners},
        opset=20,
        constants={1},
    )


def _file(image: Array, kind: str) -> Array:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind)
    return np.frombuffer(stream.getvalue(), np.uint8)


def _decoded(encoded: Array, pixel_format: str) -> Array:
    model = one_node_model("ImageDecoder", [encoded], {"pixel_format": pixel_format}, constants={0})
    (output,) = import_graph(model).outputs
    assert output.data is not None
    return output.data


@pytest.mark.parametrize("kind", ["bmp", "png", "tiff", "ppm"])
def test_image_decoder(kind: str) -> None:
    image = _RNG.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    encoded = _file(image, kind)
    np.testing.assert_array_equal(_decoded(encoded, "RGB"), image)
    np.testing.assert_array_equal(_decoded(encoded, "BGR"), image[:, :, ::-1])
    grey = _decoded(encoded, "Grayscale")
    assert grey.shape == (5, 7, 1)
    np.testing.assert_allclose(grey[:, :, 0], image @ [0.299, 0.587, 0.114], atol=1)


def test_image_decoder_bound_at_compile_time() -> None:
    image = np.full((2, 3, 3), 7, np.uint8)
    encoded = _file(image, "png")
    model = one_node_model("ImageDecoder", [encoded])
    graph = import_graph(model, Bindings(values={"x0": encoded}))
    assert [tensor.type.shape for tensor in graph.outputs] == [(2, 3, 3)]
    with pytest.raises(DataDependentShapeError, match="size of the image"):
        import_graph(model, Bindings(shapes={"x0": encoded.shape}))


def test_what_cannot_be_decoded_is_empty() -> None:
    assert _decoded(np.arange(50, dtype=np.uint8), "RGB").shape == (0, 0, 3)
    assert _decoded(np.arange(50, dtype=np.uint8), "Grayscale").shape == (0, 0, 1)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModelError, match="ImageDecoder needs Pillow"):
        _decoded(np.zeros(3, np.uint8), "RGB")


def test_unknown_pixel_format() -> None:
    with pytest.raises(ModelError, match="'CMYK', not RGB"):
        _decoded(np.zeros(3, np.uint8), "CMYK")


def test_node_tests_of_the_standard_decode_alike() -> None:
    from onnx.backend.test.case.node import _image_decoder_data as data

    for name in ("jpeg_rgb", "jpeg_bgr", "jpeg_grayscale", "webp_rgb", "jpeg2k_rgb"):
        case = getattr(data, f"image_decoder_decode_{name}")
        pixel_format = {"rgb": "RGB", "bgr": "BGR"}.get(name.rsplit("_", 1)[1], "Grayscale")
        np.testing.assert_allclose(
            _decoded(case.data, pixel_format).astype(int), case.output, atol=1
        )
