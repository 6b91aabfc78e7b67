from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import CorruptArchiveError, ResourceError
from popc_runtime.format import (
    ArchiveFile,
    Blob,
    BlobKind,
    Codec,
    Compression,
    OptionSetting,
    Origin,
    Piece,
    decode_program,
    probe,
    write_archive,
)
from popc_runtime.format import writer as writer_module
from popc_runtime.format.header import HEADER_SIZE
from tests.format.samples import (
    archive_bytes,
    flat_bytes,
    sample_blobs,
    sample_image,
    sample_manifest,
    sample_weights,
    weights_blob,
)

# -- what is written is what is read ---------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("compression", [Compression.FAST, Compression.MAX])
def test_round_trip(tmp_path: Path, codec: Codec, compression: Compression) -> None:
    blobs = sample_blobs(codec)
    write_archive(tmp_path / "a.popx", sample_manifest(), blobs, compression=compression)
    with ArchiveFile.open(tmp_path / "a.popx") as archive:
        assert archive.manifest == sample_manifest() == probe(tmp_path / "a.popx")
        assert list(archive.blobs) == ["program", "weights", "report"]
        assert decode_program(archive.read("program")) == sample_image()
        for blob in blobs:
            assert archive.read(blob.name) == flat_bytes(blob)
            assert archive.blobs[blob.name].sha256 == hashlib.sha256(flat_bytes(blob)).digest()


@pytest.mark.parametrize("codec", Codec)
def test_blobs_of_many_chunks(tmp_path: Path, codec: Codec) -> None:
    blob = weights_blob(codec, sample_weights(6 << 20))
    write_archive(tmp_path / "a.popx", sample_manifest(), [blob], threads=3)
    with ArchiveFile.open(tmp_path / "a.popx") as archive:
        loaded = np.asarray(archive.load("weights", threads=2))
        assert loaded.tobytes() == flat_bytes(blob)
        assert loaded.ctypes.data % 64 == 0
        assert not loaded.flags.writeable
        floats = blob.pieces[2]
        view = loaded[floats.offset :][: floats.array.nbytes].view(np.float32)
        assert (view == floats.array).all()


def test_shuffled_weights_are_smaller() -> None:
    sizes = {codec: len(archive_bytes(sample_blobs(codec, 1 << 20))) for codec in Codec}
    assert sizes[Codec.ZSTD_SHUFFLE] < 0.93 * sizes[Codec.ZSTD] < sizes[Codec.RAW]


def test_raw_blobs_are_mapped(tmp_path: Path) -> None:
    blob = sample_blobs(Codec.RAW)[1]
    write_archive(tmp_path / "a.popx", sample_manifest(), [*sample_blobs(Codec.RAW)])
    archive = ArchiveFile.open(tmp_path / "a.popx")
    assert archive.blobs["weights"].offset % 4096 == 0
    mapped = np.asarray(archive.map("weights"))
    archive.close()
    assert mapped.tobytes() == flat_bytes(blob)
    assert not mapped.flags.writeable
    assert mapped.ctypes.data % 4096 == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_blobs_begin_on_a_page_wherever_the_archive_does(codec: Codec) -> None:
    blobs = sample_blobs(codec)
    with ArchiveFile.open(archive_bytes(blobs)).begin("weights") as weights:
        assert np.asarray(weights.data).ctypes.data % 4096 == 0
        assert weights.data.tobytes() == flat_bytes(blobs[1])


def test_only_raw_blobs_are_mapped() -> None:
    archive = ArchiveFile.open(archive_bytes(sample_blobs()))
    with pytest.raises(CorruptArchiveError, match="'weights' is compressed and cannot be mapped"):
        archive.map("weights")


def test_missing_blobs() -> None:
    with pytest.raises(CorruptArchiveError, match="it has no blob 'optimizer'"):
        ArchiveFile.open(archive_bytes(sample_blobs())).read("optimizer")


def test_loading_into_memory_of_the_caller() -> None:
    blob = sample_blobs()[1]
    archive = ArchiveFile.open(archive_bytes(sample_blobs()))
    out = np.zeros(blob.size, np.uint8)
    archive.load_into("weights", out.data)
    assert out.tobytes() == flat_bytes(blob)
    for wrong in (out[:-1], out.view(np.int8), np.zeros(2 * blob.size, np.uint8)[::2]):
        with pytest.raises(ValueError, match="contiguous bytes"):
            archive.load_into("weights", wrong.data)


def test_threads_may_share_an_archive(tmp_path: Path) -> None:
    blobs = sample_blobs(size=1 << 20)
    write_archive(tmp_path / "a.popx", sample_manifest(), blobs)
    failures: list[str] = []
    with ArchiveFile.open(tmp_path / "a.popx") as archive:

        def read_all() -> None:
            failures.extend(b.name for b in blobs if archive.read(b.name) != flat_bytes(b))

        workers = [threading.Thread(target=read_all) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


def test_big_endian_and_scattered_arrays() -> None:
    grid = np.arange(24, dtype=">i4").reshape(4, 6)
    pieces = (Piece(0, grid.T), Piece(96, np.array([[1]], bool)), Piece(128, np.empty((0, 3))))
    archive = ArchiveFile.open(archive_bytes([weights_blob(Codec.ZSTD_SHUFFLE, pieces)]))
    data = archive.read("weights")
    assert data[:96] == grid.T.astype("<i4").tobytes()
    assert data[96:] == b"\x01" + bytes(len(data) - 97)


def test_an_empty_archive() -> None:
    archive = ArchiveFile.open(archive_bytes([]))
    assert not archive.blobs
    assert archive.manifest == sample_manifest()


# -- the same input gives the same bytes -----------------------------------------------------------


def test_threads_do_not_change_the_bytes(tmp_path: Path) -> None:
    blobs = sample_blobs(size=4 << 20)
    for threads in (1, 4):
        write_archive(tmp_path / f"{threads}.popx", sample_manifest(), blobs, threads=threads)
    assert (tmp_path / "1.popx").read_bytes() == (tmp_path / "4.popx").read_bytes()


_REBUILD = """
    import hashlib
    from tests.format.samples import archive_bytes, sample_blobs
    print(hashlib.sha256(archive_bytes(sample_blobs())).hexdigest())
"""


def test_nothing_around_changes_the_bytes(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    digests = set()
    for seed, locale, folder in (("1", "C", root), ("2", "de_DE.UTF-8", str(tmp_path))):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "PYTHONPATH": os.pathsep.join([root, *sys.path]),
            "TMPDIR": str(tmp_path),
        }
        command = [sys.executable, "-c", textwrap.dedent(_REBUILD)]
        output = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=True
        )
        digests.add(output.stdout)
    assert len(digests) == 1


def test_no_path_or_time_in_the_file(tmp_path: Path) -> None:
    target = tmp_path / "telltale.popx"
    write_archive(target, sample_manifest(), sample_blobs(Codec.RAW))
    assert b"telltale" not in target.read_bytes()


# -- whole files or none ---------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_existing_files_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.popx"
    target.write_text("precious")
    with pytest.raises(ResourceError, match="exists already") as caught:
        write_archive(target, sample_manifest(), sample_blobs())
    assert "force=True" in caught.value.hint
    assert target.read_text() == "precious"
    write_archive(target, sample_manifest(), sample_blobs(), force=True)
    assert probe(target) == sample_manifest()
    assert _names(tmp_path) == ["a.popx"]


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX matter")
def test_new_files_have_the_usual_mode(tmp_path: Path) -> None:
    target = tmp_path / "a.popx"
    write_archive(target, sample_manifest(), [])
    (tmp_path / "usual").touch()
    assert target.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="not a file that can be replaced"):
        write_archive(tmp_path, sample_manifest(), [], force=True)
    if os.name == "posix":
        with pytest.raises(ResourceError, match="not a file that can be replaced"):
            write_archive(os.devnull, sample_manifest(), [], force=True)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"cannot write .*No such file"):
        write_archive(tmp_path / "no" / "a.popx", sample_manifest(), [])


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ResourceError),
        (MemoryError(), ResourceError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (RuntimeError("a bug"), RuntimeError),
    ],
)
@pytest.mark.parametrize("where", ["encode_chunk", "pack"])
def test_failures_leave_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    expected: type[BaseException],
    where: str,
) -> None:
    def fail(*_: Any) -> None:
        raise failure

    target = tmp_path / "a.popx"
    target.write_text("precious")
    monkeypatch.setattr(writer_module, where, fail)
    with pytest.raises(expected):
        write_archive(target, sample_manifest(), sample_blobs(size=3 << 20), force=True, threads=2)
    assert _names(tmp_path) == ["a.popx"]
    assert target.read_text() == "precious"


_FULL = """
    import resource, signal, sys
    from popc_runtime.errors import ResourceError
    from popc_runtime.format import Codec, write_archive
    from tests.format.samples import sample_blobs, sample_manifest
    blobs = sample_blobs(Codec.RAW, 1 << 20)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        write_archive(sys.argv[1], sample_manifest(), blobs)
    except ResourceError as error:
        print(error.message)
"""


@pytest.mark.skipif(os.name != "posix", reason="uses a POSIX resource limit")
def test_a_full_disk(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FULL), str(tmp_path / "a.popx")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout == f"cannot write {tmp_path / 'a.popx'}: File too large\n"
    assert _names(tmp_path) == []


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"cannot read .*No such file"):
        ArchiveFile.open(tmp_path / "missing.popx")
    with pytest.raises(ResourceError, match="cannot read"):
        ArchiveFile.open(tmp_path)


def test_a_file_that_is_cut_off_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "a.popx"
    # More than Python reads ahead, which is 128 KiB from 3.14 on.
    write_archive(target, sample_manifest(), sample_blobs(Codec.RAW, 400_000))
    with ArchiveFile.open(target) as archive:
        os.truncate(target, HEADER_SIZE)
        for read in (archive.load, archive.map):
            with pytest.raises(CorruptArchiveError, match=r"too early|was cut off"):
                read("weights")


# -- what callers must not do ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../weights"},
        {"name": ""},
        {"pieces": (Piece(4, np.zeros(3, np.uint8)), Piece(6, np.zeros(1, np.uint8)))},
        {"pieces": (Piece(6, np.zeros(3, np.uint8)),)},
        {"pieces": (Piece(-1, np.zeros(3, np.uint8)),)},
    ],
)
def test_blobs_that_cannot_be_written(tmp_path: Path, change: dict[str, Any]) -> None:
    blob = replace(Blob("weights", BlobKind.WEIGHTS, Codec.ZSTD, 8, ()), **change)
    with pytest.raises(ValueError, match=r"name for a blob|overlap or lie outside"):
        write_archive(tmp_path / "a.popx", sample_manifest(), [blob])


def test_two_blobs_of_one_name(tmp_path: Path) -> None:
    blob = Blob.of_bytes("program", BlobKind.PROGRAM, b"")
    with pytest.raises(ValueError, match="same name"):
        write_archive(tmp_path / "a.popx", sample_manifest(), [blob, blob])


def test_a_manifest_that_contradicts_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a SHA-256"):
        write_archive(tmp_path / "a.popx", sample_manifest(model_sha256=""), [])


def test_a_manifest_that_readers_would_refuse(tmp_path: Path) -> None:
    options = tuple(OptionSetting(f"x{number}", 0, Origin.FILE) for number in range(70_000))
    with pytest.raises(ValueError, match=r"readers would not accept .*70000 exceeds"):
        write_archive(tmp_path / "a.popx", sample_manifest(options=options), [])
    notes = {f"note{number}": "x" * 60_000 for number in range(600)}
    with pytest.raises(ValueError, match="is larger than readers accept"):
        write_archive(tmp_path / "a.popx", sample_manifest(provenance=notes), [])
    assert _names(tmp_path) == []
