"""An operator of one's own: register it, train through it, and run what was trained.

python samples/custom_operator.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import UnregisteredOperatorError

DOMAIN = "com.example"
STEPS = 200


def snake(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """x + sin(a x)^2 / a, an activation for periodic functions."""
    (x,), a = inputs, attributes["a"]
    return x + np.sin(a * x) ** 2 / a


def snake_gradient(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    gradients: Sequence[Any],
    attributes: Mapping[str, Any],
) -> list[Any]:
    """1 + sin(2 a x), times the gradient of the result."""
    del outputs
    return [(1 + np.sin(2 * attributes["a"] * inputs[0])) * gradients[0]]


def register() -> None:
    """Make the operator known, before models that have it are compiled, or archives loaded."""
    popc.custom.register(
        DOMAIN,
        "Snake",
        types=popc.custom.like_first,  # one result, of the type of the first operand
        compute=snake,
        gradient=snake_gradient,
    )


def network() -> Any:
    """Squared error of [32, 1] numbers after a hidden layer of 16."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(1, 16)),
        "b1": rng.normal(size=16),
        "w2": rng.normal(size=(16, 1)) / 4,
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"]),
        helper.make_node("Snake", ["hidden"], ["active"], domain=DOMAIN, a=2.0),
        helper.make_node("MatMul", ["active", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "snake",
        [helper.make_tensor_value_info("x", 1, [32, 1])],
        [helper.make_tensor_value_info("y", 1, [32, 1])],
        [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def main(folder: Path) -> int:
    """Learn a wave; then load the archive where nobody knows the operator, and where one does."""
    folder.mkdir(parents=True, exist_ok=True)
    register()
    archive = popc.compile(
        network(),
        loss={"type": "mse", "input": "y", "label": "wanted"},
        optimizer={"type": "adam", "learning_rate": 0.01},
    )
    archive.save(folder / "snake.popx", force=True)
    program = popc_runtime.load(archive)
    x = np.linspace(-3, 3, 32, dtype=np.float32).reshape(32, 1)
    wanted = np.sin(2 * x)
    losses = [float(program.run(x=x, wanted=wanted)["loss"]) for _ in range(STEPS)]
    print(f"loss      {losses[0]:.4f}, after {STEPS} steps {losses[-1]:.4f}")

    popc.custom.unregister(DOMAIN, "Snake")
    try:
        popc_runtime.load(folder / "snake.popx")
    except UnregisteredOperatorError as error:
        print(f"refused   {error.message}: {', '.join(error.details)}")
    register()
    popc_runtime.load(folder / "snake.popx")
    print("loaded    with the operator registered again")
    return 0 if losses[-1] < losses[0] / 4 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "custom")))
