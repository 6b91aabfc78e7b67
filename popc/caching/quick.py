"""Finding a key again without reading the model: from its hash, and settings as they were given.

The full key needs onnx and all options.  What was asked for once is remembered with the key that it
led to, and with the files that had been read on the way; if they are still the same, so is the key.
This file imports nothing that takes time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from popc.caching.builds import build_id
from popc.caching.files import Records, file_hash, hash_of
from popc.caching.plain import NotPlainError, plain
from popc_runtime.errors import CorruptArchiveError, ResourceError
from popc_runtime.format.digests import sha256
from popc_runtime.format.serialization import Packable, pack
from popc_runtime.ground.hints import Any, Final
from popc_runtime.native import variants

__all__ = ["QuickKeys", "given_file"]

_PREFIX: Final = "POPC_"  # of variables that set options
_OTHERS: Final = "POPC_CACHE"


class QuickKeys:
    """The short way to keys, in the cache ``folder``, for a model and the settings given for it.

    Attributes:
        digest: A hash over model and settings; "" if they are of a kind that has none.
    """

    def __init__(self, folder: str, model: object, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._memory = Records(folder, "requests")
        self._base = ""
        self.digest = ""
        self._content = b""
        try:
            self._content = self._hash(model)
            asked = plain(settings)
        except NotPlainError:
            return
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_PREFIX) and not name.startswith(_OTHERS)
        }
        # Keys of few models depend on the processor; which ones is not known without reading them.
        asked_for = {
            "build": build_id(),
            "processor": variants(),
            "model": self._content,
            "asked": asked,
            "set": environment,
        }
        self.digest = sha256(pack(asked_for)).hexdigest()

    def _hash(self, model: object) -> bytes:
        if isinstance(model, bytes):
            return hash_of(model)
        if isinstance(model, str | os.PathLike):
            path = os.path.abspath(os.fspath(model))
            if os.path.isdir(path):
                raise NotPlainError("a folder")  # without a model: the compiler says so
            self._base = os.path.dirname(path)
            return file_hash(path, self._folder)
        raise NotPlainError(type(model).__name__)

    def recall(self) -> str:
        """The key that this led to before; "" if it never did, or a file has changed."""
        record = self._memory.recall(self.digest) if self.digest else None
        if record is None:
            return ""
        try:
            if record.text("folder") not in ("", os.getcwd()):
                return ""
            key = record.text("key")
            for topic, base in (("external", self._base), ("files", "")):
                for name, digest in record.record(topic).items_of():
                    if file_hash(os.path.join(base, name), self._folder) != digest:
                        return ""
        except (CorruptArchiveError, ResourceError):
            return ""
        return key

    def keep(
        self, key: str, model: str, external: Mapping[str, bytes], files: Mapping[str, bytes]
    ) -> None:
        """Remember the key that this has led to; ``model`` is the hash of the model that was read.

        Paths among settings may be relative: where there are such files, the folder counts too.
        """
        if self.digest and self._content == bytes.fromhex(model):
            folder = os.getcwd() if files else ""
            record: dict[str, Packable] = {"key": key, "folder": folder}
            self._memory.keep(self.digest, {**record, "external": external, "files": files})


def given_file(path: str | os.PathLike[str], folder: str) -> Packable:
    """A file among settings: its content, and its suffix, which says how it is read.

    Raises:
        ResourceError: it cannot be read.
    """
    name = os.fspath(path)
    return {"file": file_hash(name, folder), "suffix": os.path.splitext(name)[1]}
