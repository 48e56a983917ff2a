"""Files of indices: what they may look like, and what is wrong with those that belong to other data."""

from pathlib import Path

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.population.index_files import ListedShards, read_server_indices, read_shards

NAMES = ("ann", "bob", "cid")


def write(folder: Path, text: str) -> Path:
    path = folder / "indices.csv"
    path.write_text(text)
    return path


def write_npz(folder: Path, **arrays: object) -> Path:
    path = folder / "indices.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def shards_of(listed: ListedShards) -> list[list[int]]:
    return [shard.tolist() for shard in listed.arranged(NAMES)]


def test_both_forms_give_the_same_shards(tmp_path: Path) -> None:
    wanted = [[4, 1], [0], [7, 3, 2]]
    arrays = write_npz(tmp_path, indices=np.array([4, 1, 0, 7, 3, 2], np.int32), offsets=[0, 2, 3, 6])
    assert shards_of(read_shards(arrays, 8)) == wanted
    by_number = write(tmp_path, "client,index\n2,7\n0,4\n1,0\n2,3\n0,1\n2,2\n")
    assert shards_of(read_shards(by_number, 8)) == wanted
    by_name = write(tmp_path, "index, client\n7,cid\n4,ann\n0,bob\n3,cid\n1,ann\n2,cid\n")
    assert shards_of(read_shards(by_name, 8)) == wanted


def test_an_npz_file_is_told_by_its_content(tmp_path: Path) -> None:
    path = write_npz(tmp_path, indices=[0, 1, 2], offsets=[0, 1, 2, 3])
    assert shards_of(read_shards(path.rename(tmp_path / "copy"), 3)) == [[0], [1], [2]]


def test_arrays_go_by_row_whatever_the_names(tmp_path: Path) -> None:
    """One client's after the other: names that are numbers change nothing about it."""
    path = write_npz(tmp_path, indices=np.array([4, 1, 0, 7, 3, 2]), offsets=[0, 2, 3, 6])
    for names in (("2", "1", "0"), ("1", "2", "3"), ("x", "0", "1")):
        assert [shard.tolist() for shard in read_shards(path, 8).arranged(names)] == [[4, 1], [0], [7, 3, 2]]
    with pytest.raises(InvalidInput, match=r"the client '2', and the population has 2 .*: give each of them one shard"):
        read_shards(path, 8).arranged(("2", "1"))


def test_rows_go_by_name_where_names_are_numbers(tmp_path: Path) -> None:
    listed = read_shards(write(tmp_path, "client,index\n2,7\n0,4\n1,0\n2,3\n"), 8)
    assert [shard.tolist() for shard in listed.arranged(("2", "1", "0"))] == [[7, 3], [0], [4]]
    assert [shard.tolist() for shard in listed.arranged(("00", "01", "02"))] == [[4], [0], [7, 3]]
    for names in (("1", "2", "3"), ("001", "002", "003"), ("ann", "bob", "7")):
        with pytest.raises(InvalidInput, match=r"of the client '.'.*: its names are numbers, so write those names"):
            listed.arranged(names)


@pytest.mark.parametrize("digits", [26, 5_000])
def test_an_index_beyond_any_data_is_refused_with_its_line(tmp_path: Path, digits: int) -> None:
    shards = write(tmp_path, f"client,index\n0,1\n1,{'9' * digits}\n")
    with pytest.raises(
        InvalidInput, match=r"line 3 names the example 9999.*have 8 training .*it belongs to other data"
    ):
        read_shards(shards, 8)
    with pytest.raises(InvalidInput, match=r"line 2 names the example 9999.*have 8 server examples"):
        read_server_indices(write(tmp_path, f"part,index\nvalidation,{'9' * digits}\n"), 8, "server")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("client,index\n0,8\n1,1\n2,2\n", "names the example 8, and the data have 8 training examples"),
        ("client,index\n0,1\n1,1\n2,2\n", r"names the example 1 twice \(1 such\)"),
        ("client,index\n0,1\n2,2\n", "has no examples of the client 'bob'"),
        ("client,index\n0,1\n1,3\n3,2\n", "has examples of the client '3', and the population has 3 clients"),
        ("client,index\n0,1\n1,3\nann,4\n2,2\n", "lists the client 'ann' twice"),
        ("client,index\n0,1\n1,-3\n", "line 3 has client '1' and index '-3'"),
        ("client,index\n0,1\n,3\n", "line 3 has client '' and index '3'"),
        ("client,index\n", "has no rows below the header"),
        ("name,index\n0,1\n", r"has the columns \['name', 'index'\]: name them client and index"),
    ],
)
def test_bad_shards_in_text(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_shards(write(tmp_path, text), 8).arranged(NAMES)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"indices": [0, 1, 2], "offsets": [0, 1, 2]}, "the offsets of .* do not divide its 3 indices"),
        ({"indices": [0, 1, 2], "offsets": [0, 2, 1, 3]}, "the offsets of .* do not divide its 3 indices"),
        ({"indices": [0, 1, 2]}, "has no array 'offsets', only indices: name its arrays indices and offsets"),
        ({"indices": [0.5, 1, 2], "offsets": [0, 1, 2, 3]}, r"indices in .* is float64 of shape \(3,\)"),
        ({"indices": [[0, 1]], "offsets": [0, 1, 2]}, r"indices in .* is int64 of shape \(1, 2\)"),
        ({"indices": [0, -1, 2], "offsets": [0, 1, 2, 3]}, "names the example -1"),
    ],
)
def test_bad_shards_in_arrays(tmp_path: Path, arrays: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_shards(write_npz(tmp_path, **arrays), 8)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"partition.file = '.*nowhere.csv' cannot be read \(No such file"):
        read_shards(tmp_path / "nowhere.csv", 8)
    with pytest.raises(InvalidInput, match=r"data.split_file = .* cannot be read"):
        read_server_indices(tmp_path / "nowhere.csv", 8, "training")
    (tmp_path / "cut.npz").write_bytes(write_npz(tmp_path, indices=[0], offsets=[0, 1]).read_bytes()[:40])
    with pytest.raises(InvalidInput, match=r"cut.npz is a damaged npz file"):
        read_shards(tmp_path / "cut.npz", 8)
    (tmp_path / "noise").write_bytes(b"client,index\n\xff\xfe,3\n")
    with pytest.raises(InvalidInput, match=r"noise is neither an npz file nor CSV text"):
        read_shards(tmp_path / "noise", 8)
    np.savez(tmp_path / "objects.npz", indices=np.array([{}], dtype=object), offsets=[0, 1])
    with pytest.raises(InvalidInput, match=r"objects.npz is a damaged npz file"):
        read_shards(tmp_path / "objects.npz", 8)


def test_the_servers_examples_in_both_forms(tmp_path: Path) -> None:
    arrays = write_npz(tmp_path, validation=[5, 3], calibration=[1, 0, 6], others=[9.0])
    text = write(tmp_path, "part,index\nvalidation,5\ncalibration,1\nvalidation,3\ncalibration,0\ncalibration,6\n")
    for path in (arrays, text):
        validation, calibration = read_server_indices(path, 8, "training")
        assert (validation.tolist(), calibration.tolist()) == ([5, 3], [1, 0, 6])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("part,index\nvalidation,5\ntest,1\n", "has the part 'test': write validation or calibration"),
        ("part,index\nvalidation,5\ncalibration,1\n", "has 1 validation and 1 calibration examples"),
        ("part,index\nvalidation,5\ncalibration,1\ncalibration,5\n", "names the example 5 twice"),
        ("part,index\nvalidation,9\ncalibration,1\ncalibration,5\n", "the data have 8 server examples"),
    ],
)
def test_bad_examples_of_the_server(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_server_indices(write(tmp_path, text), 8, "server")
