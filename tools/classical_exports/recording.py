"""Write small exports of classical models for the tests, with what onnxruntime computes.

    python -m tools.classical_exports.recording tests/recorded/classical.npz

It needs what `pip install --group classical` installs, and onnxruntime.
"""

from __future__ import annotations

import sys
import warnings
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.classical_exports.data import with_plain_numbers
from tools.classical_exports.models import exports

_LARGEST: Final = 6_000  # bytes of a model, packed
_ROWS: Final = 8
_EACH: Final = 3  # of so many models, one is recorded


def main() -> None:
    """Train, export, run and write every third of the models that are small."""
    warnings.simplefilter("ignore")
    with_plain_numbers()
    found: dict[str, Any] = {}
    names = []
    for name, make in exports().items():
        try:
            model, inputs = make()
        except Exception as error:  # noqa: BLE001 - a converter that fails stops no other
            print(f"{name}: not exported: {type(error).__name__}")
            continue
        if len(zlib.compress(model.SerializeToString())) <= _LARGEST:
            names.append(name)
            if len(names) % _EACH == 1:
                _record(found, name, model.SerializeToString(), inputs)
    np.savez_compressed(Path(sys.argv[1]), allow_pickle=False, **found)
    print(f"{len(names)} small models, {len(found)} arrays")


def _record(found: dict[str, Any], name: str, model: bytes, inputs: dict[str, Any]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = {key: value[:_ROWS] for key, value in inputs.items()}
    results = session.run(None, given)
    found[f"{name}/model"] = np.frombuffer(model, np.uint8)
    found |= {f"{name}/inputs/{key}": _plain(value) for key, value in given.items()}
    for output, value in zip(session.get_outputs(), results, strict=True):
        found[f"{name}/results/{output.name}"] = _plain(value)
    print(name, flush=True)


def _plain(value: Any) -> Any:
    """Words as an array of strings, and maps as a column for each key."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value], np.float32)
    array = np.asarray(value)
    return array.astype(np.str_) if array.dtype == object else array


if __name__ == "__main__":
    main()
