"""Signatures of archives: DSSE envelopes in files beside them.

The payload is an in-toto statement about the archive.  It names the digest at the end of the file,
which covers header and manifest, and through the hashes in the manifest all blobs: whoever loads
the archive compares these anyway.  The hash of the whole file stands beside it, for other tools.

The envelope is made and verified by securesystemslib; keys are the user's, in PEM files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from popc_runtime.errors import ResourceError, SignatureError, UsageError
from popc_runtime.format.reader import ArchiveFile
from popc_runtime.process.files import new_file
from popc_runtime.process.paths import is_url, open_regular

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = ["Keys", "require_signature", "sign_archive", "signature_path"]

# Public keys: the path of a PEM file, or several, one of which must have signed.
Keys: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PAYLOAD: Final = "application/vnd.in-toto+json"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://in-toto.io/attestation/release/v0.1"
_OWN: Final = "popxManifestSha256"  # in the place of an algorithm's name, as in-toto allows
_MOST: Final = 1 << 20  # bytes of an envelope or a key
_INSTALL: Final = "pip install 'popc-runtime[sign]'"


def signature_path(archive: str | os.PathLike[str]) -> Path:
    """The file that holds the signatures of an archive."""
    path = Path(archive)
    return path.with_name(f"{path.name}.sig")


def sign_archive(
    archive: str | os.PathLike[str], key: str | os.PathLike[str], *, passphrase: str = ""
) -> Path:
    """Sign an archive, beside those who have signed it before; the file of signatures.

    Args:
        archive: The archive, which stays as it is.
        key: A private key in a PEM file: Ed25519, ECDSA or RSA.
        passphrase: Of the key, if it is encrypted.

    Raises:
        UsageError: there is no such key, or the library for signatures is not installed.
        SignatureError: the file of signatures is not one, or is about something else.
        ArchiveError, ResourceError: the archive cannot be read.
    """
    _require_library()
    from securesystemslib.dsse import Envelope

    path = signature_path(archive)
    signer = _signer(Path(key), passphrase)
    payload = _statement(archive)
    envelope = Envelope(payload, _PAYLOAD, {})
    if path.exists():
        envelope = _read(path)
        if envelope.payload != payload:
            raise SignatureError(
                f"{path} signs something else than {os.fspath(archive)}",
                subject=str(path),
                hint="remove it, and sign the archive anew",
            )
    envelope.sign(signer)
    with new_file(path) as file:
        file.write(json.dumps(envelope.to_dict(), indent=1, sort_keys=True).encode() + b"\n")
    return path


def require_signature(
    archive: ArchiveFile, path: str, keys: Keys, *, whole: bool = False
) -> tuple[str, ...]:
    """Check that one of ``keys`` has signed the archive that was opened; the names of the keys.

    Args:
        archive: The archive.
        path: Its file, beside which signatures are; "" if it is in memory.
        keys: See `Keys`.
        whole: Whether to hash the whole file too.

    Raises:
        SignatureError: there is no signature, it is damaged, of another archive, or by others.
        UsageError: a key cannot be read, the archive is in memory, or the library for signatures
            is not installed.
    """
    if not path:
        raise UsageError(
            "an archive in memory has no signature beside it",
            hint="save it, and load it by its path",
        )
    if is_url(path):
        raise UsageError(
            f"the signature of {path} is not on this machine",
            subject=path,
            hint="copy the archive and its file .sig here, and load that",
        )
    _require_library()
    known = [_public_key(Path(key)) for key in _listed(keys)]
    signatures = signature_path(path)
    if not signatures.exists():
        raise SignatureError(
            f"{path} is not signed: there is no {signatures.name} beside it",
            subject=path,
            hint="ask whoever made the archive for it, or sign it yourself: popc sign",
        )
    envelope = _read(signatures)
    found = _verified(envelope, known, path)
    _check_statement(envelope, archive, path, whole=whole)
    return found


def _require_library() -> None:
    try:
        import cryptography  # noqa: F401 - without it securesystemslib verifies nothing
        import securesystemslib  # noqa: F401
    except ImportError:
        raise UsageError(
            "signatures need securesystemslib and cryptography, which are not installed",
            hint=_INSTALL,
        ) from None


# -- what is signed --------------------------------------------------------------------------------


def _statement(archive: str | os.PathLike[str]) -> bytes:
    with ArchiveFile.open(archive) as opened:
        opened.verify()
        digests = {"sha256": _file_hash(archive), _OWN: opened.digest.hex()}
    subject = {"name": Path(archive).name, "digest": digests}
    statement = {
        "_type": _STATEMENT,
        "subject": [subject],
        "predicateType": _PREDICATE,
        "predicate": {},
    }
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def _file_hash(path: str | os.PathLike[str]) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror or error}") from error


def _check_statement(envelope: Envelope, archive: ArchiveFile, path: str, *, whole: bool) -> None:
    expected = {_OWN: archive.digest.hex()}
    if whole:
        expected["sha256"] = _file_hash(path)
    for digest in _digests(envelope):
        if expected.items() <= digest.items():
            return
    raise SignatureError(
        f"the signature beside {path} is that of another archive, or the archive was changed",
        subject=path,
        hint="get the archive and its signature again, from the same source",
    )


def _digests(envelope: Envelope) -> list[Mapping[str, Any]]:
    """The digests of the subjects of a statement whose signature is right.

    The same key may sign other statements about an archive: that a test has failed, for instance.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        statement = json.loads(envelope.payload)
        said = (envelope.payload_type, statement["_type"], statement["predicateType"])
        if said == (_PAYLOAD, _STATEMENT, _PREDICATE):
            listed = [subject["digest"] for subject in statement["subject"]]
            return [digest for digest in listed if isinstance(digest, dict)]
    return []


# -- who has signed it -----------------------------------------------------------------------------


def _verified(envelope: Envelope, keys: Sequence[SSlibKey], path: str) -> tuple[str, ...]:
    from securesystemslib.exceptions import VerificationError

    try:
        return tuple(envelope.verify(list(keys), 1))
    except VerificationError:
        wanted = {key.keyid for key in keys}
        signers = sorted(envelope.signatures)
    if wanted.isdisjoint(signers):
        raise SignatureError(
            f"{path} is signed, but not by a key that is required",
            subject=path,
            details=(
                f"signed by {', '.join(signers) or 'nobody'}",
                f"required: {' or '.join(sorted(wanted))}",
            ),
        )
    raise SignatureError(
        f"the signature beside {path} was changed: the key that it names has not made it",
        subject=path,
        hint="get the archive and its signature again, from the same source",
    )


def _read(path: Path) -> Envelope:
    from securesystemslib.dsse import Envelope

    if not path.is_file():  # opening a pipe would wait for whoever writes to it
        raise SignatureError(f"{path} is not a regular file", subject=str(path))
    data = _bytes_of(path)
    if len(data) > _MOST:
        raise SignatureError(f"{path} is too large for signatures", subject=str(path))
    try:
        return Envelope.from_dict(json.loads(data))
    except Exception as error:  # whatever is in the file: the library checks few of its fields
        raise SignatureError(
            f"{path} is not a DSSE envelope",
            subject=str(path),
            details=(f"{type(error).__name__}: {error}"[:200],),
            hint="sign the archive anew: popc sign",
        ) from error


def _listed(keys: Keys) -> Sequence[str | os.PathLike[str]]:
    listed: Any = [keys] if isinstance(keys, (str, os.PathLike)) else keys
    paths = isinstance(listed, Sequence) and not isinstance(listed, bytes)
    if not paths or not all(isinstance(key, (str, os.PathLike)) for key in listed):
        raise UsageError(
            f"require_signature takes the path of a public key, or several, not {keys!r:.80}"
        )
    if not listed:
        raise UsageError("no key is given that a signature could be required of")
    chosen: Sequence[str | os.PathLike[str]] = listed
    return chosen


def _public_key(path: Path) -> SSlibKey:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    data = _bytes_of(path)
    try:
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except Exception as error:  # whatever is in the file
        raise _no_key(path, "public") from error


def _signer(path: Path, passphrase: str) -> CryptoSigner:
    """A signer with the private key in a file."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    data = _bytes_of(path)
    try:
        key: Any = load_pem_private_key(data, passphrase.encode() or None)
        return CryptoSigner(key)
    except TypeError as error:  # one that is needed, or one too many
        raise UsageError(f"the key {path} cannot be opened: {error}", subject=str(path)) from error
    except Exception as error:  # whatever is in the file
        raise _no_key(path, "private") from error


def _no_key(path: Path, kind: str) -> UsageError:
    return UsageError(
        f"{path} does not hold a {kind} key in PEM format that signatures can be made with",
        subject=str(path),
        hint="keys are of Ed25519, RSA, or ECDSA on the NIST curves: "
        "openssl genpkey -algorithm ed25519 -out private.pem; "
        "openssl pkey -in private.pem -pubout -out public.pem",
    )


def _bytes_of(path: Path) -> bytes:
    """Bytes of a file, one more than `_MOST` at most."""
    try:
        with open_regular(path) as file:
            return file.read(_MOST + 1)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise ResourceError(f"cannot read {path}: {reason or error}", subject=str(path)) from error
