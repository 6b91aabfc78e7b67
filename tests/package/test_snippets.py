"""What pages show runs: commands and Python of every page, in a folder where its files are.

docs/guides.md, docs/tutorial.md and README.md bring all that they need, and are run elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest

import popc
from samples.generate import Sizes, small_llama
from samples.networks import digits_cnn, digits_mlp
from tests.serving.running import model as layer
from tests.support.classical import colours_model
from tests.support.models import affine

_ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RUN_ELSEWHERE: Final = ("docs/frameworks.md", "docs/guides.md", "docs/tutorial.md")
# Commands that need another system, or what a test cannot reach; and who runs them.
_OTHERS: Final = {
    "pip": "installs from the package index",
    "make": "Makefile targets; see .ci/run",
    "docker": "tests/package/test_images.py, by buildah",
    "buildah": "tests/package/test_images.py",
    "mmdebstrap": "tests/package/test_images.py",
    "printf": "tests/package/test_images.py",
    "base=docker.io/library/python:3.13.9-slim-trixie": "a registry of images",
    "digest=$(docker": "a registry of images",
    "digest=$(skopeo": "a registry of images",
    "qemu-aarch64": "a system for aarch64",
    "fuzz/coverage.sh": "needs clang and a campaign",
    "tools.campaigns.archives": "takes half an hour; tests/campaigns",
    "tools.campaigns.graphs": "takes an hour; tests/campaigns",
    "serve": "tests/samples/test_ray.py",
    "samples/ray_batches.py": "tests/samples/test_ray.py",
}


def _fixed(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """``model`` for one size of batches."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    return model


def _digits(folder: Path) -> None:
    """A network, how to train it, and data for that."""
    onnx.save(_fixed(digits_mlp(), 8), folder / "model.onnx")
    (folder / "train.toml").write_bytes((_ROOT / "samples" / "digits.toml").read_bytes())
    draw = np.random.default_rng(0)
    image = draw.standard_normal((64, 64)).astype(np.float32)
    np.savez(folder / "digits.npz", image=image, label=draw.integers(0, 10, 64, np.int32))


_DATA: Final = """
import numpy as np
data = dict(np.load("digits.npz"))
images, labels = data["image"], data["label"]
"""


def _trained(folder: Path) -> None:
    _digits(folder)
    popc.compile(folder / "model.onnx", train=folder / "train.toml").save(folder / "train.popx")


def _host_call(folder: Path) -> None:
    """A program that calls add_two."""
    node = onnx.helper.make_node(
        "HostCall", ["b"], ["c"], domain="ai.graphcore", function="add_two"
    )
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "bc"
    ]
    graph = onnx.helper.make_graph([node], "calls", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.graphcore", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    popc.compile(model).save(folder / "model.popx")


def _masked(folder: Path) -> None:
    """What trains: a model with a mask for all replicas, and a tensor of the name of a block."""
    _trained(folder)
    model = digits_mlp()
    nodes = model.graph.node
    mask = onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, [10])
    model.graph.input.append(mask)
    nodes[-1].CopyFrom(onnx.helper.make_node("Add", [nodes[-1].input[0], "mask"], ["logits"]))
    before = nodes[-2].input[0]
    nodes[-2].input[0] = "block1_out"
    made = next(node for node in nodes if before in node.output)
    made.output[0] = "block1_out"
    onnx.save(model, folder / "model.onnx")


def _unmasked(folder: Path) -> None:
    """The archive takes all samples at once."""
    _digits(folder)
    onnx.save(digits_mlp(), folder / "model.onnx")
    made = popc.compile(digits_mlp(), dims={"batch": 64}, train=folder / "train.toml")
    made.save(folder / "train.popx")


def _plain(folder: Path) -> None:
    onnx.save(affine(), folder / "model.onnx")
    popc.compile(affine()).save(folder / "model.popx")


def _feeds(folder: Path) -> None:
    """The model, and a module with a data set."""
    _plain(folder)
    lines = ["import numpy as np", "train = [np.ones((2, 3), np.float32)] * 1000"]
    (folder / "my_data.py").write_text("\n".join(lines), encoding="utf-8")


def _open(folder: Path) -> None:
    onnx.save(digits_mlp(), folder / "model.onnx")


def _detector(folder: Path) -> None:
    """Rows of a table are selected by what is in them."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    detector (float[400, 4] image) => (float[n, 4] boxes) {
        zero = Constant<value = float {0.0}>()
        first = Constant<value_int = 0>()
        scores = Gather<axis = 1>(image, first)
        mask = Greater(scores, zero)
        selected = Compress<axis = 0>(image, mask)
        boxes = Abs(selected)
    }"""
    onnx.save(onnx.parser.parse_model(text), folder / "detector.onnx")
    np.save(folder / "photo.npy", np.eye(400, 4, dtype=np.float32))


def _decoder(folder: Path) -> None:
    onnx.save(small_llama(Sizes(words=64, layers=1)), folder / "decoder.onnx")


def _layer(folder: Path) -> None:
    for name in ("net", "resnet50"):
        onnx.save(layer(), folder / f"{name}.onnx")
    np.save(folder / "x.npy", np.ones((8, 16), np.float32))


def _batch(folder: Path) -> None:
    _digits(folder)
    onnx.save(digits_cnn(), folder / "net.onnx")


def _classical(folder: Path) -> None:
    onnx.save(colours_model("N"), folder / "pipeline.onnx")


def _picture(folder: Path) -> None:
    """x [1, 3, 224, 224], the size that the page shows."""
    model = affine(1, 224)
    for value in (*model.graph.input, *model.graph.output):
        del value.type.tensor_type.shape.dim[:]
        for size in (1, 3, 224, 224):
            value.type.tensor_type.shape.dim.add(dim_value=size)
    popc.compile(model).save(folder / "model.popx")


def _serving(folder: Path) -> None:
    """x [batch, 3], as the page asks it."""
    onnx.save(affine("batch"), folder / "net.onnx")


_EVERYWHERE: Final = """
import sys
import numpy as np, onnx, popc, popc_runtime
from onnx import helper
from popc import popart
sys.modules["popart"] = popart
"""
_PROGRAM: Final = """
archive = popc.compile("model.onnx", options={"instrument_with_hardware_cycle_counter": True,
    "hardware_instrumentations": ["outer", "inner"]})
program, inputs = archive.load(), {"x": np.zeros((2, 3), np.float32)}
session, key = program.session(), open("feed.key", "rb").read()
"""
_BUILDER: Final = """
builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [2])
"""
_TRAINING: Final = """
pictures, others, model = images, data, onnx.load("model.onnx")
"""
_COLOURS: Final = "colours = ['red', 'green'] * 32\n"
_KEYS: Final = """
import shutil
for name in ("ours.pem", "theirs.pem"):
    shutil.copy("public.pem", name)
"""
# What Python finds in a folder of its own, where commands have other files.
_OF_PYTHON: Final[dict[str, Callable[[Path], None]]] = {"docs/training.md": _unmasked}
# Said before each block of a page: blocks that show the same in another way.
_BETWEEN: Final = {
    "docs/custom.md": "for each in popc.custom.registered():\n"
    "    popc.custom.unregister('com.acme', 'Cube')\n"
}
# What is there before a page is read, and what Python has at hand.
_PAGES: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "docs/batch_serialization.md": (_batch, ""),
    "docs/caching.md": (_layer, ""),
    "docs/classical.md": (_classical, _COLOURS),
    "docs/custom.md": (_host_call, _BUILDER),
    "docs/fitting.md": (_open, ""),
    "docs/generation.md": (_decoder, ""),
    "docs/images.md": (_plain, ""),
    "docs/inside/fuzzing.md": (_plain, ""),
    "docs/inside/kernels.md": (_plain, ""),
    "docs/native.md": (_plain, ""),
    "docs/popart.md": (_plain, ""),
    "docs/scale.md": (_digits, f"{_DATA}from popc_runtime.trainer import Trainer\n"),
    "docs/serving.md": (_serving, ""),
    "docs/signing.md": (_plain, _KEYS),
    "docs/sizes.md": (_detector, ""),
    "docs/training.md": (_masked, _DATA + _TRAINING),
    "docs/transfers.md": (_feeds, _PROGRAM),
    "runtime/README.md": (_picture, ""),
}  # fmt: skip


def _blocks(page: str, *languages: str) -> list[str]:
    text = (_ROOT / page).read_text(encoding="utf-8")
    return [body for language, body in _FENCE.findall(text) if language in languages]


def _shown() -> set[str]:
    pages = [
        *(_ROOT / "docs").rglob("*.md"),
        *(_ROOT / each / "README.md" for each in ("runtime", "facade")),
    ]
    names = {str(page.relative_to(_ROOT)) for page in pages}
    return {name for name in names if _blocks(name, "sh", "console", "python")}


def test_every_page_with_snippets_is_run() -> None:
    assert _shown() == {*_PAGES, *_RUN_ELSEWHERE}


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder),
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"


def _is_of_others(line: str) -> bool:
    words = shlex.split(line, comments=True)
    names = {words[0]} if words else set()
    if words[:1] == ["python"]:
        names |= {words[1], *words[2:3]}
    return not words or not names.isdisjoint(_OTHERS)


def _serves(line: str) -> bool:
    return line.startswith(("popc serve ", "python -m popc_runtime.serving "))


@pytest.mark.slow
@pytest.mark.parametrize("page", _PAGES)
def test_snippets_of_pages(page: str, tmp_path: Path) -> None:
    """Each block of commands where nothing has run, and then Python, where the last one has."""
    prepare, names = _PAGES[page]
    folder = tmp_path
    for number, body in enumerate(_blocks(page, "sh", "console") or [""]):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        _run_commands(folder, _lines(body))
    blocks = [each for each in _blocks(page, "python") if _is_run(each)]
    if page in _OF_PYTHON:
        folder = tmp_path / "python"
        folder.mkdir()
        _OF_PYTHON[page](folder)
    if blocks:
        between = f"\n{_BETWEEN.get(page, '')}"
        _run(folder, sys.executable, "-c", _EVERYWHERE + names + between.join(["", *blocks]))


def _is_run(block: str) -> bool:
    """True unless it takes PyTorch, or a model that fits no target: tests/advice has some."""
    return ("torch." not in block or find_spec("torch") is not None) and "popc.explain" not in block


def _lines(body: str) -> list[str]:
    """The commands of a block that can be run here."""
    joined = body.replace("\\\n", " ").replace(" -d \n", " -d ")
    lines = [line.removeprefix("$ ") for line in joined.splitlines()]
    return [line for line in lines if not _is_of_others(line)]


def _run_commands(folder: Path, lines: list[str]) -> None:
    asking = [line for line in lines if line.startswith("curl ")]
    for line in lines:
        if _serves(line):
            _asked(folder, line, asking)
        elif line not in asking:
            _run(folder, "bash", "-c", line)


def _asked(folder: Path, line: str, asking: list[str]) -> None:
    """Start a server, ask it what the page asks, and end it."""
    server = subprocess.Popen(
        [*shlex.split(line, comments=True), "--log-level", "error"],
        cwd=folder, env=_environment(folder), text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        for _ in range(2000):
            if server.poll() is not None:
                assert server.stderr is not None
                pytest.skip(f"ports of the page are taken: {server.stderr.read()}")
            try:
                urllib.request.urlopen("http://localhost:8000/v2/health/ready").close()
                break
            except OSError:
                time.sleep(0.05)
        for each in asking:
            _run(folder, "bash", "-c", each.replace("curl ", "curl --fail --silent "))
    finally:
        server.terminate()
        server.communicate()
