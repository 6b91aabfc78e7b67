"""Write networks as people export them, with inputs, to be compiled and compared.

    pip install --group networks
    python -m tools.network_exports FOLDER [NAME ...]

writes NAME.FORM.onnx and NAME.FORM.npz (the inputs) for each network and each form of forms.py:
both exporters of PyTorch, and what onnxruntime's tools make of the first one's.  Weights are
random, from fixed seeds; versions are pinned by the dependency group.  `python -m benchmarks.corpus
FOLDER` compares and measures them.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path

import numpy as np

from tools.network_exports.forms import FORMS
from tools.network_exports.networks import NETWORKS, written


def main() -> None:
    """Write all networks, or those that are named; what is there already stays."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--form", action="append", choices=list(FORMS), help="may be given again")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    numbers = {name: number for number, name in enumerate(NETWORKS)}
    for name in arguments.names or NETWORKS:
        for form in arguments.form or FORMS:
            if FORMS[form].every and numbers[name] % FORMS[form].every:
                continue
            target = arguments.folder / f"{name}.{form}.onnx"
            if target.exists():
                continue
            try:
                arrays = written(name, form, target)
            except Exception as error:  # noqa: BLE001 - a network that fails stops no other
                target.unlink(missing_ok=True)
                text = " ".join(str(error).split())
                print(
                    f"{target.stem}: not exported: {type(error).__name__}: {text[:160]}", flush=True
                )
                continue
            np.savez(target.with_suffix(".npz"), **arrays)
            print(target.stem, flush=True)


if __name__ == "__main__":
    main()
