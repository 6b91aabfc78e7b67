"""Show what the cache does: a hit, a miss and its reason, two processes at once, one killed.

    python samples/cached.py [MODEL.onnx]

The cache of this script is in a temporary folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Loads a model, and says whether it was compiled.
_LOAD = """
import os, sys, time
start = time.perf_counter()
import popc
compiled = []
def note(event):
    if event.stage == "plan" and event.seconds is None:
        compiled.append(event)
        if "--die" in sys.argv:
            os.kill(os.getpid(), 9)
model = popc.load(sys.argv[1], on_progress=note)
what = "compiled" if compiled else "found in the cache"
seconds = time.perf_counter() - start
onnx = "with" if "onnx" in sys.modules else "without"
print(f"  process {os.getpid()}: {what}, loaded after {seconds:.2f} s, {onnx} importing onnx")
"""


def main() -> int:
    """Run the four scenes."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPC_CACHE"] = str(Path(folder, "cache"))
        model = Path(sys.argv[1]) if len(sys.argv) > 1 else _network(Path(folder, "network.onnx"))
        print("A process is killed while it compiles:")
        killed = _start(model, "--die").wait()
        print(f"  ended by signal {signal.Signals(-killed).name}; the cache:")
        _popc("cache", "list")
        print("Two processes want the program at once:")
        for worker in [_start(model) for _ in range(2)]:
            worker.wait()
        print("A third one comes later:")
        _start(model).wait()
        print("A script without the compiler loads it by its name:")
        subprocess.run([sys.executable, "-c", _BY_NAME, model.stem], check=True)
        print("With another option it is not there:")
        _popc("cache", "why", str(model), "--set", "enable_inplace=false")
        print("The cache:")
        _popc("cache", "status")
    return 0


_BY_NAME = """
import sys, time
start = time.perf_counter()
import popc_runtime
model = popc_runtime.load_cached(sys.argv[1])
print(f"  {model} after {time.perf_counter() - start:.2f} s")
assert "popc" not in sys.modules
"""

_COMMAND = "from popc.cli import main; main()"


def _start(model: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _LOAD, str(model), *more])


def _popc(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments], capture_output=True, text=True, check=False
    )
    for line in (done.stdout or done.stderr).splitlines():
        print(f"  {line}")


def _network(path: Path) -> Path:
    """A perceptron of twelve layers."""
    generator = np.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(12):
        weight = generator.standard_normal((256, 256), dtype=np.float32) / 16
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        before = f"h{layer}" if layer else "x"
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"h{layer + 1}"]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info("h12", TensorProto.FLOAT, [1, 256])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


if __name__ == "__main__":
    sys.exit(main())
