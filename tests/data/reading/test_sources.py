import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedfeast import unpacking
from fedfeast.data.reading.sources import list_files, read_arrays, read_files
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator

FILES = {"a/one.txt": b"1", "a/two.txt": b"22", "three.txt": b"333"}


def as_folder(root: Path) -> Path:
    for name, content in {**FILES, ".hidden": b"", "a/._one.txt": b"", "__MACOSX/one": b""}.items():
        (root / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "tree" / name).write_bytes(content)
    return root / "tree"


def as_tar(root: Path) -> Path:
    path = root / "tree.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(as_folder(root), arcname=".")
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


def as_zip(root: Path) -> Path:
    path = root / "tree.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in as_folder(root).rglob("*"):
            archive.write(file, file.relative_to(root / "tree"))
    return path


@pytest.mark.parametrize("write", [as_folder, as_tar, as_zip])
def test_a_folder_and_archives_give_the_same_files(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    source = write(tmp_path)
    names = list_files(source)
    assert [name.removeprefix("./") for name in names] == sorted(FILES)
    read = {name.removeprefix("./"): content for name, content in read_files(source, set(names))}
    assert read == FILES
    assert [name for name, _ in read_files(source, {names[1]})] == [names[1]]


def test_members_that_point_outside_are_read_without_writing_anything(tmp_path: Path) -> None:
    path = tmp_path / "hostile.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    (name,) = list_files(path)
    assert dict(read_files(path, {name})) == {"../../escaped.txt": b"x"}
    assert [file.name for file in tmp_path.iterdir()] == ["hostile.tar.gz"]
    assert not (tmp_path.parent.parent / "escaped.txt").exists()


@pytest.mark.parametrize("write", [as_tar, as_zip])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6, 0.98])
def test_a_cut_archive_is_refused(tmp_path: Path, write: Callable[[Path], Path], kept: float) -> None:
    source = write(tmp_path)
    content = source.read_bytes()
    source.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InvalidInput, match=rf"{source} is damaged or incomplete .*: remove it and fetch"):
        list_files(source)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    source = as_tar(tmp_path)
    content = bytearray(source.read_bytes())
    content[-6] ^= 1  # in the checksum
    source.write_bytes(content)
    with pytest.raises(InvalidInput, match="is damaged"):
        list_files(source)


def test_no_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="/nothing does not exist"):
        list_files(tmp_path / "nothing")


def tar_bomb(path: Path) -> Path:
    """Write a tar archive of a few hundred kilobytes whose one member has a gigabyte."""
    member = tarfile.TarInfo("zeros")
    member.size = 1 << 30
    zeros = gzip.compress(bytes(16 << 20))
    path.write_bytes(gzip.compress(member.tobuf()) + 64 * zeros + gzip.compress(bytes(1024)))
    return path


@pytest.mark.parametrize("read", [list_files, lambda source: list(read_files(source, {"zeros"}))])
def test_a_tar_bomb_ends_where_its_bound_is(tmp_path: Path, read: Callable[[Path], list[object]]) -> None:
    bomb = tar_bomb(tmp_path / "bomb.tar.gz")
    with pytest.raises(InvalidInput, match=r"bomb.tar.gz has \d+ bytes and unpacks to 2\d{8} or more"):
        read(bomb)


def test_zip_bombs_are_refused_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 1 << 20)
    for name, bomb in (("bomb.zip", tmp_path / "bomb.zip"), ("bomb.npz", tmp_path / "bomb.npz")):
        np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros(16 << 20, np.uint8))
        (tmp_path / "bomb.npz").replace(bomb)
        with pytest.raises(InvalidInput, match=rf"{name} has \d+ bytes and unpacks to 16777344 or more"):
            list_files(bomb) if name == "bomb.zip" else read_arrays(bomb, ["inputs"])
    with pytest.raises(InvalidInput, match=r"bomb.zip has"):
        list(read_files(tmp_path / "bomb.zip", {"inputs.npy"}))


def test_an_array_that_claims_a_size_it_has_not(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 46,)})
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("inputs.npy", header.getvalue())
    with pytest.raises(InvalidInput, match=r"claims.npz is damaged or no npz file"):
        read_arrays(tmp_path / "claims.npz", ["inputs"])


@pytest.mark.parametrize("kind", ["zip", "npz", "tar.gz"])
def test_damaged_archives_are_read_or_named(tmp_path: Path, kind: str) -> None:
    whole = as_zip(tmp_path) if kind == "zip" else as_tar(tmp_path) if kind == "tar.gz" else tmp_path / "a.npz"
    if kind == "npz":
        np.savez_compressed(whole, inputs=np.arange(20), labels=np.arange(20))
    content, source = whole.read_bytes(), tmp_path / f"damaged.{kind}"
    for number in range(60):
        generator = named_generator(number, "damaged archive")
        damaged = bytearray(content)
        for _ in range(generator.integers(1, 6)):
            damaged[generator.integers(len(damaged))] = generator.integers(256)
        source.write_bytes(damaged)
        with suppress(InvalidInput):
            read_arrays(source, ["inputs"]) if kind == "npz" else dict(read_files(source, list_files(source)))
