"""The files that are published beside wheels: a list of parts, and where wheels come from.

python -m tools.release dist --repository URL [--key private.pem]

* ``sbom.cdx.json``: a CycloneDX list of the wheels, with their hashes, and of what they require.
* ``provenance.json``: an in-toto statement with SLSA provenance: wheels and source distributions
  by their hashes, the commit that they were built from, and how.  With ``--key`` it is signed, as
  a DSSE envelope in ``provenance.dsse.json``.
* ``simple/``: a package index of the folder (`tools.simple_index`).

All are made of the files and the commit alone: the same commit gives the same bytes.  Before, it
looks whether the versions agree, and whether all files are of that version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email import message_from_string
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL
from packaging.requirements import Requirement

from tools.simple_index import write_index
from tools.version import changelog_version, problems
from tools.wheels import ROOT, source_date

__all__ = ["main"]

_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"
_BUILD_TYPE = "https://packaging.python.org/en/latest/specifications/pyproject-toml/"
_PAYLOAD = "application/vnd.in-toto+json"


def main(arguments: Sequence[str]) -> int:
    """Write these files beside the wheels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", required=True, metavar="URL")
    parser.add_argument("--key", type=Path, help="a private key in a PEM file")
    given = parser.parse_args(arguments)
    wheels = sorted(given.folder.glob("*.whl"))
    if not wheels:
        parser.error(f"there are no wheels in {given.folder}: make wheels")
    sources = sorted(given.folder.glob("*.tar.gz"))
    _check_versions([*wheels, *sources])
    (given.folder / "sbom.cdx.json").write_text(_bom(wheels), encoding="utf-8")
    provenance = _provenance([*wheels, *sources], given.repository)
    statement = json.dumps(provenance, indent=1, sort_keys=True)
    (given.folder / "provenance.json").write_text(f"{statement}\n", encoding="utf-8")
    if given.key is not None:
        signed = _signed(statement.encode(), given.key)
        (given.folder / "provenance.dsse.json").write_text(signed, encoding="utf-8")
    write_index(given.folder)
    return 0


def _check_versions(files: Sequence[Path]) -> None:
    version = changelog_version()
    others = [each.name for each in files if f"-{version}-" not in each.name.replace(".tar", "-")]
    wrong = [*problems(), *(f"{name} is not of version {version}" for name in others)]
    if wrong:
        raise SystemExit("\n".join(wrong))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bom(wheels: Sequence[Path]) -> str:
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, "".join(map(_hash, wheels))))
    bom.metadata.timestamp = datetime.fromtimestamp(int(source_date()), UTC)
    required: dict[str, Component] = {}
    for wheel in wheels:
        own, requirements = _wheel_component(wheel)
        bom.components.add(own)
        for requirement in requirements:
            found = required.setdefault(requirement.name, _required(requirement))
            bom.components.add(found)
        bom.register_dependency(own, [required[each.name] for each in requirements])
    return f"{JsonV1Dot5(bom).output_as_string(indent=1)}\n"


def _wheel_component(wheel: Path) -> tuple[Component, list[Requirement]]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    component = Component(
        type=ComponentType.LIBRARY,
        name=metadata["Name"],
        version=metadata["Version"],
        bom_ref=wheel.name,
        purl=PackageURL("pypi", None, metadata["Name"], metadata["Version"], {"file": wheel.name}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_hash(wheel))],
        licenses=[DisjunctiveLicense(id=metadata["License-Expression"])],
    )
    return component, [each for each in requirements if each.marker is None]


def _required(requirement: Requirement) -> Component:
    """A package that is installed with a wheel; which version, is decided there."""
    return Component(
        type=ComponentType.LIBRARY,
        name=requirement.name,
        bom_ref=requirement.name,
        purl=PackageURL("pypi", None, requirement.name),
        description=f"required: {requirement}",
    )


def _git(*words: str) -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()


def _provenance(files: Sequence[Path], repository: str) -> dict[str, object]:
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise SystemExit(f"the tree has changes that no commit has:\n{changed}")
    return {
        "_type": _STATEMENT,
        "subject": [{"name": each.name, "digest": {"sha256": _hash(each)}} for each in files],
        "predicateType": _PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "command": "make wheels",
                    "SOURCE_DATE_EPOCH": source_date(),
                },
                "resolvedDependencies": [
                    {"uri": f"git+{repository}", "digest": {"gitCommit": commit}}
                ],
            },
            "runDetails": {"builder": {"id": repository}},
        },
    }


def _signed(payload: bytes, key: Path) -> str:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    envelope = Envelope(payload, _PAYLOAD, {})
    envelope.sign(CryptoSigner(load_pem_private_key(key.read_bytes(), None)))
    return f"{json.dumps(envelope.to_dict(), indent=1, sort_keys=True)}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
