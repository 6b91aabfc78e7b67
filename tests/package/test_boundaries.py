"""What may import what, and what is public."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import onnx
import pytest

import popc
import popc_runtime
from popc import ir, memory, placement, schedule, target
from popc_runtime import device, format, native  # noqa: A004
from popc_runtime.data import streams
from popc_runtime.ground.lazy import installed_version
from tests.support.modules import modules_of

# What numpy, msgpack and zstandard need counts as theirs.
RUNTIME_MAY_IMPORT = {"popc_runtime", "numpy", "msgpack", "zstandard"}

_TRACE = """
import builtins, json, sys
asked = set()
original = builtins.__import__
def note(name, globals=None, locals=None, fromlist=(), level=0):
    package = (globals or {}).get("__name__", "").split(".")[0]
    if package == "popc_runtime" and level == 0:
        asked.add(name.split(".")[0])
    return original(name, globals, locals, fromlist, level)
builtins.__import__ = note
import popc_runtime
popc_runtime.load(sys.argv[1]).warmup()
print(json.dumps(sorted(asked - set(sys.stdlib_module_names))))
"""


def test_runtime_imports_its_three_dependencies_only(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from tests.support.models import affine

    path = tmp_path_factory.mktemp("light") / "m.popx"
    popc.compile(affine()).save(path)
    done = subprocess.run(
        [sys.executable, "-c", _TRACE, str(path)], capture_output=True, text=True, check=True
    )
    assert set(json.loads(done.stdout)) <= RUNTIME_MAY_IMPORT


_LATER = """
import json, sys
import popc_runtime
before = "numpy" in sys.modules
popc_runtime.load(sys.argv[1]).warmup()
found = [name for name in sys.modules if name.startswith("popc_runtime.")]
print(json.dumps([before, found]))
"""


def test_what_a_program_does_not_use_is_not_imported(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from tests.support.models import affine

    path = tmp_path_factory.mktemp("light") / "m.popx"
    popc.compile(affine()).save(path)
    done = subprocess.run(
        [sys.executable, "-c", _LATER, str(path)], capture_output=True, text=True, check=True
    )
    numpy_is_there, found = json.loads(done.stdout)
    assert not numpy_is_there
    later = """
        state.checkpoint cycles.counters cycles.execution device.replicas format.writer
        kernels.printing session data.streams.sinks data.streams.sources data.synthetic
    """
    assert not {f"popc_runtime.{name}" for name in later.split()} & set(found)


@pytest.mark.parametrize(
    "package",
    [popc, popc_runtime, format, streams, device, ir, memory, native, placement, schedule, target],
)
def test_lazy_names_are_those_that_are_public(package: ModuleType) -> None:
    assert all(hasattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_command_line_help_imports_neither_onnx_nor_the_archive_format() -> None:
    script = (
        "import sys; from popc.cli.root import run; run(['--help']); "
        "print({'onnx', 'numpy', 'popc_runtime.format'}.isdisjoint(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"


_COMPILING = """
import json, sys
from popc.cli.root import run
assert run(["compile", sys.argv[1], "-o", sys.argv[2]]) == 0
print(json.dumps(list(sys.modules)))
"""
_OF_OTHER_MODELS = """
    popc.cost popc.autodiff.rules popc.study popc.reporting.sections popc.frontend.rules.ml.trees
    popc.frontend.rules.microsoft.attention popc.frontend.rules.onnx.rnn popc.frontend.rules.sized
    popc.transforms.batch_serialization.analysis popc.transforms.outlining.calls
    popc.transforms.overlap_io.rotation popc.transforms.pipelining.transform
    popc.options.combinations popc.options.dialects.dialect secrets traceback
    onnx onnx.onnx_cpp2py_export google.protobuf.json_format importlib.metadata email.message
    _hashlib subprocess zipfile popc.frontend.remedies popc.frontend.unsupported popc.memory.check
    popc.schedule.check popc.placement.layers
    popc.ops.rnn popc.ops.resize popc.autodiff popc.ir.dot popc.ir.printer popc.ir.verifier
    popc.placement.placing popc.target.parse popc.transforms.streaming.transfers
    popc.transforms.accumulation popc.schedule.exact popc.ops.divergence popc_runtime.format.reader
    popc_runtime.kernels.core.preparation popc_runtime.native.program
    random
"""


def test_a_compilation_imports_what_its_model_needs(tmp_path: Path) -> None:
    from tests.support.models import affine

    model, archive = tmp_path / "m.onnx", tmp_path / "m.popx"
    onnx.save(affine(), model)
    words = [sys.executable, "-c", _COMPILING, str(model), str(archive)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert not set(_OF_OTHER_MODELS.split()) & set(found)
    # A module takes 0.2 ms: there were 590 when all rules of operators were imported, and 470 when
    # all definitions of ops were.
    assert len([name for name in found if name.startswith("popc")]) < 390


@pytest.mark.parametrize(
    "name", ["popc-runtime", "popc", "numpy", "ml_dtypes", "typing_extensions"]
)
def test_versions_are_those_of_the_installation(name: str) -> None:
    assert installed_version(name) == metadata.version(name)


def test_what_is_not_installed_has_no_known_version() -> None:
    assert installed_version("popc-nothing") == "0+unknown"


def _wrong_lists(module: ModuleType) -> Iterator[str]:
    if isinstance(module.__loader__, ExtensionFileLoader):
        return
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is None:
        yield f"{module.__name__} has no __all__"
        return
    if len(set(listed)) != len(listed):
        yield f"{module.__name__}.__all__ lists something twice"
    for item in listed:
        if not hasattr(module, item):
            yield f"{module.__name__}.__all__ lists {item}, which does not exist"


@pytest.mark.parametrize("package", [popc, popc_runtime])
def test_every_module_lists_what_is_public(package: ModuleType) -> None:
    """One test for all of them: a thousand tests take far longer than what they look at."""
    assert [wrong for each in modules_of(package) for wrong in _wrong_lists(each)] == []


@pytest.mark.parametrize("package", [popc, popc_runtime])
def test_public_names_are_all_listed(package: object) -> None:
    listed = set(getattr(package, "__all__"))  # noqa: B009
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, type(sys)) and name != "annotations"
    }
    public -= {"lazy_names", "TYPE_CHECKING"}
    assert public <= listed
