from pathlib import Path

import numpy as np
import pytest

from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.own_files import read_csv, read_npz, read_own_file
from fedfeast.errors import InvalidInput

TABLE = "person,weight,height,kind,part\nann,1,2.5,cat,train\nbob,-1e2,3,dog,test\n\nann,4,5,dog,train\n"
NAMED = {"clients": "person", "labels": "kind", "test": "part"}


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("\ufeff" + TABLE, encoding="utf-8")
    own = read_csv(path, PrepareOptions(**NAMED))  # type: ignore[arg-type]
    assert own.inputs.tolist() == [[1, 2.5], [-100, 3], [4, 5]]
    assert own.labels.tolist() == ["cat", "dog", "dog"]
    assert own.clients is not None
    assert own.clients.tolist() == ["ann", "bob", "ann"]
    assert own.test is not None
    assert own.test.tolist() == ["train", "test", "train"]


def test_several_columns_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,b,c\n1,0,5\n0,1,6\n")
    own = read_csv(path, PrepareOptions(labels="a, b", task="multi-label"))
    assert own.labels.tolist() == [[1, 0], [0, 1]]
    assert own.label_names == ("a", "b")
    with pytest.raises(InvalidInput, match="--labels a,b names several columns: say --task"):
        read_csv(path, PrepareOptions(labels="a,b"))
    assert read_csv(path, PrepareOptions(labels="c")).labels.dtype == np.int64


@pytest.mark.parametrize(
    ("table", "options", "sentence"),
    [
        (
            TABLE,
            {**NAMED, "clients": "persona"},
            r"no column 'persona' \(did you mean 'person'\?\): it has person, weight",
        ),
        (TABLE, {"clients": "person"}, "no column 'labels': it has .* by --labels, --clients, --test"),
        (TABLE, {**NAMED, "test": "kind"}, "one column of .* is named twice"),
        (TABLE, {"clients": "person", "labels": "kind"}, "row 1 of .* has 'train' in the column 'part', which is no"),
        (TABLE.replace("-1e2", "many"), NAMED, "row 2 of .* has 'many' in the column 'weight', which is no number"),
        (TABLE.replace(",4,", ",,"), NAMED, "row 3 of .* has '' in the column 'weight'"),
        (TABLE.replace("ann,4,5,dog,train", "ann,4,5"), NAMED, "line 5 of .* has 3 cells instead of 5"),
        (TABLE.replace("height", "weight"), NAMED, "two columns 'weight'"),
        (TABLE.replace(",", ";"), NAMED, "has one column only .*: separate the columns by commas"),
        (TABLE.partition("\n")[0], NAMED, "has no rows below its header"),
        ("", NAMED, "has no rows below its header"),
        ("person,kind,part\na,b,test\n", NAMED, "has no columns beside kind, person, part"),
        (TABLE, {**NAMED, "task": "next-token"}, "is a table, which holds no next tokens"),
        (TABLE, {**NAMED, "task": "regression"}, "row 1 of .* has 'cat' in the column 'kind'"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path: Path, table: str, options: dict[str, str], sentence: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(table)
    with pytest.raises(InvalidInput, match=sentence):
        read_own_file(path, PrepareOptions(**options))  # type: ignore[arg-type]


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=np.ones((4, 2)), labels=[0, 1, 0, 1], who=["a", "b", "a", "b"], kind=[1, 2, 1, 2])
    own = read_npz(path, PrepareOptions(clients="who"))
    assert own.clients is not None
    assert (own.inputs.shape, own.clients.tolist(), own.test) == ((4, 2), ["a", "b", "a", "b"], None)
    assert read_npz(path, PrepareOptions(labels="kind")).labels.tolist() == [1, 2, 1, 2]
    with pytest.raises(InvalidInput, match=r"has no array 'whom' \(did you mean 'who'\?\): it holds inputs, labels"):
        read_npz(path, PrepareOptions(clients="whom"))


def test_files_that_are_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", inputs=np.ones((2, 2)), labels=np.array([{}, {}], dtype=object))
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "text.npz").write_text("inputs")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "objects.npz").read_bytes()[:-30])
    (tmp_path / "wide.csv").write_text(TABLE, encoding="utf-16")
    (tmp_path / "mine.xlsx").write_text(TABLE)
    for name, sentence in {
        "objects.npz": "holds Python objects, which are not read",
        "one.npz": "holds one array without a name",
        "text.npz": "is damaged or no npz file",
        "cut.npz": "is damaged or no npz file",
        "none.npz": "none.npz does not exist",
        "none.csv": "none.csv does not exist",
        "wide.csv": "is no CSV file in UTF-8",
        "mine.xlsx": "is no npz or csv file and no folder",
    }.items():
        with pytest.raises(InvalidInput, match=sentence):
            read_own_file(tmp_path / name, PrepareOptions())
    with pytest.raises(InvalidInput, match="--size 8 resizes folders of images only"):
        read_own_file(tmp_path / "mine.csv", PrepareOptions(size=8))
