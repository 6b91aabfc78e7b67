"""Exports of classical models: scikit-learn's, LightGBM's and XGBoost's, trained on small data.

    pip install --group classical
    python -m tools.classical_exports FOLDER [NAME ...]

writes NAME.onnx and NAME.npz (inputs of some rows) for each model, to be compiled and compared with
`popc verify NAME.onnx --input NAME.npz`.  Versions are pinned by the dependency group; the same
versions give the same models.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tools.classical_exports.data import with_plain_numbers
from tools.classical_exports.models import exports


def main() -> None:
    """Write all models, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with_plain_numbers()
    known = exports()
    for name in arguments.names or known:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model, inputs = known[name]()
            except Exception as error:  # noqa: BLE001 - a converter that fails stops no other
                print(f"{name}: not exported: {type(error).__name__}: {str(error)[:200]}")
                continue
        (arguments.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        arrays: dict[str, Any] = dict(inputs)
        np.savez(arguments.folder / f"{name}.npz", **arrays)
        print(name)


if __name__ == "__main__":
    main()
