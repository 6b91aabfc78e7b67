r"""Train a small convolutional network to read digits, export it, and use what was exported.

    python samples/train_digits.py [FOLDER]

This does through Python what one would type as

    popc compile digits.onnx --dim batch=32 --train samples/digits.toml -o train.popx
    popc compile digits.onnx --dim batch=1 --set constant_weights=false -o eval.popx
    popc train train.popx --data train.npz --epochs 12 --eval eval.popx --eval-data test.npz \
        --accuracy logits=label --export digits_trained.onnx
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from networks import digits_cnn

import popc
import popc_runtime
from popc.trained.evaluation import Evaluation
from popc_runtime.trainer import Trainer

HERE = Path(__file__).resolve().parent
BATCH = 32
EPOCHS = 12
WANTED = 0.97


def load_digits() -> tuple[dict[str, Any], dict[str, Any]]:
    """Images [n, 1, 8, 8] from 0 to 1 and labels [n]: three quarters to train with, one to test."""
    with gzip.open(HERE / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(table))
    images = (table[order, :64] / 16).reshape(-1, 1, 8, 8)
    labels = table[order, 64].astype(np.int32)
    cut = len(table) * 3 // 4
    return (
        {"image": images[:cut], "label": labels[:cut]},
        {"image": images[cut:], "label": labels[cut:]},
    )


def main(folder: Path) -> int:
    """Train, export, compile what was exported, test that."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_digits()
    model = digits_cnn()

    start = perf_counter()
    training = popc.compile(model, dims={"batch": BATCH}, train=HERE / "digits.toml")
    training.save(folder / "train.popx", force=True)
    variable = popc.compile(model, dims={"batch": 1}, options={"constant_weights": False})
    variable.save(folder / "eval.popx", force=True)
    print(f"compiled  train.popx and eval.popx in {perf_counter() - start:.2f} s")

    start = perf_counter()
    executable = popc_runtime.load(folder / "train.popx")
    evaluate = Evaluation(folder / "eval.popx", test, ("logits", "label"))
    trainer = Trainer(executable, train, evaluate=evaluate)
    for record in trainer.run(EPOCHS):
        accuracy = record.metrics["accuracy"]
        print(f"epoch {record.epoch:<3} loss {record.loss:.4f}  accuracy {accuracy:.1%}")
    print(f"trained   in {perf_counter() - start:.1f} s")

    trained = folder / "digits.onnx"
    popc.export_onnx(folder / "train.popx", trained, state=executable, force=True)
    popc.compile(trained, dims={"batch": 1}).save(folder / "digits.popx", force=True)
    reader = popc_runtime.load(folder / "digits.popx")
    read = [int(reader.run(image=image[None])["logits"].argmax()) for image in test["image"]]
    right = float(np.mean(read == test["label"]))
    print(f"exported  {trained}: reads {right:.1%} of {len(read)} digits")
    return 0 if right >= WANTED else 1


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / ".cache" / "digits"
    sys.exit(main(target))
