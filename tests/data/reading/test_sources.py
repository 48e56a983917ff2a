import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfeast.data.reading.sources import list_files, read_files
from fedfeast.errors import InvalidInput

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
