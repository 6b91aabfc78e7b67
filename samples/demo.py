"""Compile a trained model and run it: which language is a source file written in?

    make demo

This does through Python what one would type as

    popc compile .cache/models/magika.onnx -o .cache/magika.popx --shape bytes=1,2048
    popc run .cache/magika.popx --input bytes=features.npy
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

from fetch_models import CACHE, FetchError, fetch
from file_type import features, labels

import popc
import popc_runtime


def main() -> int:
    """Fetch, compile, save, load, run; print what happens."""
    try:
        model = fetch("magika")
    except FetchError as error:
        print(f"error: {error}\nhint: the demo downloads a model of 3 MB", file=sys.stderr)
        return 7
    archive_path = CACHE.parent / "magika.popx"

    start = perf_counter()
    archive = popc.compile(model, shapes={"bytes": (1, 2048)})
    archive.save(archive_path, force=True)
    print(
        f"compiled  {model.name} ({model.stat().st_size:,} bytes) into {archive_path.name} "
        f"({archive_path.stat().st_size:,} bytes) in {perf_counter() - start:.2f} s"
    )

    start = perf_counter()
    executable = popc_runtime.load(archive_path)
    print(f"loaded    {archive_path.name} in {1e3 * (perf_counter() - start):.0f} ms")

    names = labels(model)
    for path in (Path(json.__file__), Path(__file__).parents[1] / "Makefile", model):
        start = perf_counter()
        (scores,) = executable.run({"bytes": features(path.read_bytes())}).values()
        elapsed = 1e3 * (perf_counter() - start)
        best = int(scores[0].argmax())
        where = f"{path.parent.name}/{path.name}"
        print(f"ran       {where}: {names[best]} ({scores[0, best]:.1%}) in {elapsed:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
