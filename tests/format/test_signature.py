"""Signatures beside archives: what is stripped, altered or foreign is refused."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

import popc
import popc_runtime
from popc.cli.root import run
from popc_runtime.errors import ArchiveError, ResourceError, SignatureError, UsageError
from popc_runtime.format.signature import sign_archive, signature_path
from tests.support.models import affine

_KINDS: dict[str, Callable[[], Any]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}
_OTHER_KINDS: dict[str, Callable[[], Any]] = {"ed448": ed448.Ed448PrivateKey.generate}


def _keys(
    folder: Path, name: str, kind: str = "ed25519", passphrase: bytes = b""
) -> tuple[Path, Path]:
    """A private and a public key."""
    key = {**_KINDS, **_OTHER_KINDS}[kind]()
    how: KeySerializationEncryption = (
        BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    )
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two archives."""
    folder = tmp_path_factory.mktemp("archives")
    paths = []
    for seed in (0, 1):
        path = folder / f"{seed}.popx"
        popc.compile(affine(), options={"seed": seed}).save(path)
        paths.append(path)
    return paths[0], paths[1]


@pytest.fixture
def archive(archives: tuple[Path, Path], tmp_path: Path) -> Path:
    """An archive of the test's own."""
    return Path(shutil.copy(archives[0], tmp_path / "model.popx"))


@pytest.mark.parametrize("kind", list(_KINDS))
def test_what_is_signed_loads(archive: Path, tmp_path: Path, kind: str) -> None:
    private, public = _keys(tmp_path, "own", kind)
    before = archive.read_bytes()
    assert sign_archive(archive, private) == signature_path(archive)
    assert archive.read_bytes() == before
    popc_runtime.load(archive, require_signature=public)
    assert run(["check", str(archive), "--signed-by", str(public)]) == 0


def test_several_have_signed(archive: Path, tmp_path: Path) -> None:
    (first, one), (second, two), (_, other) = (_keys(tmp_path, name) for name in "abc")
    for key in (first, second, first):
        sign_archive(archive, key)
    assert len(json.loads(signature_path(archive).read_bytes())["signatures"]) == 2
    for keys in (one, two, [other, two]):
        popc_runtime.load(archive, require_signature=keys)


def test_a_key_with_a_passphrase(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = _keys(tmp_path, "own", passphrase=b"secret")
    with pytest.raises(UsageError, match="cannot be opened"):
        sign_archive(archive, private)
    monkeypatch.setenv("SECRET", "secret")
    words = ["sign", str(archive), "--key", str(private), "--passphrase-env", "SECRET"]
    assert run(words) == 0
    popc_runtime.load(archive, require_signature=public)


# -- what is refused -------------------------------------------------------------------------------


def _strip(archive: Path, other: Path) -> None:
    del other
    signature_path(archive).unlink()


def _exchange(archive: Path, other: Path) -> None:
    shutil.copy(other, archive)


def _edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path, Path], None]:
    def edit(archive: Path, other: Path) -> None:
        del other
        path = signature_path(archive)
        envelope = json.loads(path.read_bytes())
        change(envelope)
        path.write_text(json.dumps(envelope))

    return edit


def _other_payload(envelope: dict[str, Any]) -> None:
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["subject"][0]["digest"]["popxManifestSha256"] = "0" * 64
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()


def _other_signature(envelope: dict[str, Any]) -> None:
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[5] ^= 1
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()


def _other_statement(private: Path, archive: Path) -> None:
    """Sign, with the same key, that a test of the archive has failed."""
    path = signature_path(archive)
    statement = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
    statement["predicateType"] = "https://in-toto.io/attestation/test-result/v0.1"
    key: Any = load_pem_private_key(private.read_bytes(), None)
    envelope = Envelope(json.dumps(statement).encode(), "application/vnd.in-toto+json", {})
    envelope.sign(CryptoSigner(key))
    path.write_text(json.dumps(envelope.to_dict()))


def _pipe(archive: Path, other: Path) -> None:
    _strip(archive, other)
    os.mkfifo(signature_path(archive))


def _none(envelope: dict[str, Any]) -> None:
    envelope["signatures"] = []


def _write(data: bytes) -> Callable[[Path, Path], None]:
    return lambda archive, other: (signature_path(archive).write_bytes(data), None)[1]


_ATTACKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "stripped": (_strip, "is not signed: there is no model.popx.sig beside it"),
    "another archive": (_exchange, "is that of another archive, or the archive was changed"),
    "another payload": (_edit(_other_payload), "was changed: the key that it names has not made"),
    "another signature": (_edit(_other_signature), "was changed: the key that it names has not"),
    "another type": (_edit(lambda e: e.update(payloadType="text/plain")), "was changed"),
    "no signatures": (_edit(_none), "is signed, but not by a key that is required"),
    "no envelope": (_write(b"{}"), "is not a DSSE envelope"),
    "no JSON": (_write(b"\xff"), "is not a DSSE envelope"),
    "too large": (_write(b" " * (1 << 20 | 1)), "is too large for signatures"),
    "a pipe": (_pipe, "model.popx.sig is not a regular file"),
    "nested": (_write(b"[" * 100_000), "is not a DSSE envelope"),
    "a list": (_write(b'{"payload": 1, "payloadType": [], "signatures": 3}'), "is not a DSSE"),
}


@pytest.mark.parametrize("attack", list(_ATTACKS))
def test_attacks(
    archive: Path,
    archives: tuple[Path, Path],
    tmp_path: Path,
    attack: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    private, public = _keys(tmp_path, "own")
    sign_archive(archive, private)
    change, message = _ATTACKS[attack]
    change(archive, archives[1])
    with pytest.raises(SignatureError, match=message):
        popc_runtime.load(archive, require_signature=public)
    assert run(["check", str(archive), "--signed-by", str(public)]) == 5
    assert message in capsys.readouterr().err
    popc_runtime.load(archive)  # who requires nothing gets what there is


def test_another_statement_of_the_same_key(archive: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "own")
    sign_archive(archive, private)
    _other_statement(private, archive)
    with pytest.raises(SignatureError, match="is that of another archive"):
        popc_runtime.load(archive, require_signature=public)


def test_a_foreign_signature(archive: Path, tmp_path: Path) -> None:
    (private, _), (_, public) = _keys(tmp_path, "foreign"), _keys(tmp_path, "own")
    sign_archive(archive, private)
    with pytest.raises(SignatureError, match="not by a key that is required") as caught:
        popc_runtime.load(archive, require_signature=[public])
    assert [line.split()[0] for line in caught.value.details] == ["signed", "required:"]


def test_weights_that_were_changed(archive: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "own")
    sign_archive(archive, private)
    data = bytearray(archive.read_bytes())
    data[100] ^= 1  # of a blob: its hash stands in the manifest, which is signed
    archive.write_bytes(data)
    with pytest.raises(ArchiveError):
        popc_runtime.load(archive, require_signature=public)


def test_what_users_get_wrong(archive: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "own")
    with pytest.raises(UsageError, match="does not hold a private key"):
        sign_archive(archive, public)
    sign_archive(archive, private)
    with pytest.raises(UsageError, match="does not hold a public key"):
        popc_runtime.load(archive, require_signature=private)
    with pytest.raises(UsageError, match="an archive in memory has no signature"):
        popc_runtime.load(archive.read_bytes(), require_signature=public)
    with pytest.raises(UsageError, match="no key is given"):
        popc_runtime.load(archive, require_signature=[])
    for path in (tmp_path / "none", "a\0b"):
        with pytest.raises(ResourceError, match="cannot read"):
            popc_runtime.load(archive, require_signature=path)
    for wrong in (3, b"own.pub", [None]):
        with pytest.raises(UsageError, match="takes the path of a public key, or several, not"):
            popc_runtime.load(archive, require_signature=wrong)  # type: ignore[arg-type]
    other, _ = _keys(tmp_path, "other", "ed448")
    with pytest.raises(UsageError, match="does not hold a private key"):
        sign_archive(archive, other)
    assert run(["check", str(public), "--signed-by", str(public)]) != 0


def test_the_envelope_is_that_of_in_toto(archive: Path, tmp_path: Path) -> None:
    sign_archive(archive, _keys(tmp_path, "own")[0])
    envelope = json.loads(signature_path(archive).read_bytes())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["name"] == "model.popx"


def test_what_was_signed_before_is_not_signed_over(archive: Path, tmp_path: Path) -> None:
    private, _ = _keys(tmp_path, "own")
    sign_archive(archive, private)
    popc.compile(affine(), options={"seed": 2}).save(archive, force=True)
    with pytest.raises(SignatureError, match="signs something else"):
        sign_archive(archive, private)
