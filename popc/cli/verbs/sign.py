"""popc sign."""

from __future__ import annotations

import os
from pathlib import Path

import click

from popc.cli.report import Report
from popc_runtime.errors import UsageError

__all__ = ["command"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("sign")
@click.argument("archive", type=_FILE)
@click.option(
    "--key",
    type=_FILE,
    required=True,
    metavar="FILE",
    help="Your private key in a PEM file: Ed25519, ECDSA or RSA.",
)
@click.option(
    "--passphrase-env",
    metavar="NAME",
    default="",
    help="The environment variable that holds the passphrase of the key, if it has one.",
)
def command(*, archive: Path, key: Path, passphrase_env: str) -> Report:
    """Sign ARCHIVE, so that others can require that it is yours and as you made it.

    The signature is written to a file beside it, ARCHIVE.sig, with those of others who have signed
    the same archive.  The archive stays as it is.

    \b
    openssl genpkey -algorithm ed25519 -out private.pem
    openssl pkey -in private.pem -pubout -out public.pem
    popc sign model.popx --key private.pem
    popc check model.popx --signed-by public.pem
    """
    from popc_runtime.format.signature import sign_archive

    if passphrase_env and passphrase_env not in os.environ:
        raise UsageError(f"the environment variable {passphrase_env} is not set")
    passphrase = os.environ.get(passphrase_env, "") if passphrase_env else ""
    written = sign_archive(archive, key, passphrase=passphrase)
    data = {"archive": str(archive), "signature": str(written)}
    return Report("sign", data, f"signed: {written}")
