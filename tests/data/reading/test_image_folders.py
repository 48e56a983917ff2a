from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfeast.data.reading import image_folders
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.image_files import Fault
from fedfeast.data.reading.options import PrepareOptions
from fedfeast.errors import InvalidInput


def read_image_folder(folder: Path, options: PrepareOptions) -> Decoded:
    """Return what is to be decoded of a folder in which nothing is skipped."""
    found = image_folders.read_image_folder(folder, options)
    assert found.skipped == ()
    return found.decoded


def write_images(folder: Path, count: int, side: int = 8, level: int = 0, mode: str = "RGB") -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        colour = level + number if mode == "L" else (level + number, 0, 0)
        Image.new(mode, (side, side), colour).save(folder / f"{number:02}.png")


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Return a folder of two classes, ten and five images."""
    write_images(tmp_path / "cats", 10, level=10)
    write_images(tmp_path / "dogs", 5, level=100)
    (tmp_path / ".cache").mkdir()
    (tmp_path / "README.txt").write_text("not a class")
    return tmp_path


def test_a_fifth_of_every_class_is_held_out(classes: Path) -> None:
    decoded = read_image_folder(classes, PrepareOptions())
    assert decoded.class_names == ("cats", "dogs")
    assert decoded.labels["train"].tolist() == [0] * 8 + [1] * 4
    assert decoded.labels["test"].tolist() == [0] * 2 + [1]
    levels: dict[str, list[int]] = {split: [] for split in decoded.labels}
    for split, position, pixels in sorted(decoded.inputs, key=lambda one: one[:2]):
        assert (pixels[0, 0, 0, 0] >= 100) == (decoded.labels[split][position] == 1)
        levels[split].append(int(pixels[0, 0, 0, 0]))
    assert sorted(levels["train"] + levels["test"]) == [*range(10, 20), *range(100, 105)]
    assert levels["train"] == sorted(levels["train"])


def test_the_draw_follows_its_seed_and_share(classes: Path) -> None:
    def held_out(**options: float) -> list[int]:
        decoded = read_image_folder(classes, PrepareOptions(**options))  # type: ignore[arg-type]
        return sorted(int(pixels[0, 0, 0, 0]) for split, _, pixels in decoded.inputs if split == "test")

    assert held_out() == held_out(seed=0, test_share=0.2)
    assert held_out() != held_out(seed=1)
    assert len(held_out(test_share=0.5)) == 5 + 2
    assert len(held_out(test_share=0.001)) == 2
    assert len(held_out(test_share=0.999)) == 9 + 4


def test_a_train_and_a_test_folder_are_taken_as_they_are(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for name in ("b", "a"):
            write_images(tmp_path / split / name, count, mode="L")
    decoded = read_image_folder(tmp_path, PrepareOptions())
    assert decoded.channels == 1  # all are grey
    assert decoded.class_names == ("a", "b")
    assert {split: labels.tolist() for split, labels in decoded.labels.items()} == {
        "train": [0, 0, 0, 1, 1, 1],
        "test": [0, 0, 1, 1],
    }
    with pytest.raises(InvalidInput, match=r"--test-share 0.3 has no effect"):
        read_image_folder(tmp_path, PrepareOptions(test_share=0.3))
    (tmp_path / "valid").mkdir()
    with pytest.raises(InvalidInput, match="holds valid beside train and test"):
        read_image_folder(tmp_path, PrepareOptions())
    (tmp_path / "valid").rmdir()
    write_images(tmp_path / "test" / "c", 1)
    with pytest.raises(InvalidInput, match=r"class 'c' is in .*/test but not in .*/train"):
        read_image_folder(tmp_path, PrepareOptions())


def test_one_colour_image_makes_all_colour(classes: Path) -> None:
    Image.new("L", (8, 8), 7).save(classes / "cats" / "grey.png")
    decoded = read_image_folder(classes, PrepareOptions())
    assert decoded.channels == 3
    assert all(pixels.shape == (1, 3, 8, 8) for _, _, pixels in decoded.inputs)


def test_sizes_must_agree_or_be_given(classes: Path) -> None:
    odd = classes / "dogs" / "odd.png"
    Image.new("RGB", (12, 9)).save(odd)
    with pytest.raises(
        InvalidInput, match=rf"{odd} has 12 x 9 pixels, but .*cats/\d+.png has 8 x 8: give --size N to resize"
    ):
        read_image_folder(classes, PrepareOptions())
    decoded = read_image_folder(classes, PrepareOptions(size=16))
    assert decoded.side == 16
    assert {pixels.shape for _, _, pixels in decoded.inputs} == {(1, 3, 16, 16)}


def test_images_that_are_no_squares_need_a_size(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.new("RGB", (12, 9)).save(tmp_path / name / f"{number}.png")
    with pytest.raises(InvalidInput, match=r"a/\d.png has 12 x 9 pixels and is no square: give --size N"):
        read_image_folder(tmp_path, PrepareOptions())
    assert read_image_folder(tmp_path, PrepareOptions(size=9)).side == 9


def test_folders_that_are_no_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="/nothing is no folder"):
        read_image_folder(tmp_path / "nothing", PrepareOptions())
    with pytest.raises(InvalidInput, match="has no class folders"):
        read_image_folder(tmp_path, PrepareOptions())
    write_images(tmp_path / "only", 3)
    with pytest.raises(InvalidInput, match=r"has one class only \(only\)"):
        read_image_folder(tmp_path, PrepareOptions())
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"class folder .*/empty is empty"):
        read_image_folder(tmp_path, PrepareOptions())
    (tmp_path / "empty" / "deeper").mkdir()
    with pytest.raises(InvalidInput, match=r"/empty holds a folder \(deeper\)"):
        read_image_folder(tmp_path, PrepareOptions())
    (tmp_path / "empty" / "deeper").rmdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "empty" / "one.png")
    with pytest.raises(InvalidInput, match=r"class 'empty' has one image only"):
        read_image_folder(tmp_path, PrepareOptions())
    (tmp_path / "empty" / "one.png").write_text("no image")
    with pytest.raises(
        InvalidInput, match=r"/empty holds no image that can be read \(one.png: its format is none of PNG"
    ):
        read_image_folder(tmp_path, PrepareOptions())


def test_what_is_no_image_is_skipped_with_its_reason(classes: Path) -> None:
    (classes / "cats" / "notes.txt").write_text("no image")
    (classes / "dogs" / "nothing.jpg").touch()
    found = image_folders.read_image_folder(classes, PrepareOptions())
    assert {one.file: one.reason for one in found.skipped} == {
        "cats/notes.txt": "its format is none of PNG, JPEG, WEBP, BMP, GIF, PPM, TIFF",
        "dogs/nothing.jpg": "it is empty",
    }
    assert found.decoded.facts.examples == {"train": 12, "test": 3}
    again = image_folders.read_image_folder(classes, PrepareOptions(), [Fault("cats/00.png", "cut off")])
    assert len(again.skipped) == 3
    assert again.decoded.labels["train"].tolist() == [0] * 7 + [1] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 2}, "--size 2"),
        ({"test_share": 0.0}, "--test-share 0.0"),
        ({"test_share": 1.0}, "1.0"),
        ({"seed": -1}, "-1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PrepareOptions(**options)  # type: ignore[arg-type]


def test_labels_are_whole_numbers(classes: Path) -> None:
    assert read_image_folder(classes, PrepareOptions()).labels["train"].dtype == np.int64


def write_clients(folder: Path, counts: dict[str, int]) -> None:
    """Write images as CLIENT/CLASS/NUMBER.png, grey by their number."""
    for place, count in counts.items():
        (folder / place).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (8, 8), number).save(folder / place / f"{number}.png")


def test_folders_of_clients(tmp_path: Path) -> None:
    write_clients(tmp_path, {"ann/cat": 6, "ann/dog": 4, "bob/dog": 5, "cy/cat": 1})
    decoded = read_image_folder(tmp_path, PrepareOptions(clients="folder"))
    assert (decoded.client_names, decoded.class_names) == (("ann", "bob", "cy"), ("cat", "dog"))
    assert np.bincount(decoded.clients["train"]).tolist() == [8, 4, 1]
    assert np.bincount(decoded.clients["test"]).tolist() == [2, 1]
    assert decoded.labels["train"][-5:].tolist() == [1, 1, 1, 1, 0]
    pixels = {(split, position): int(image[0, 0, 0, 0]) for split, position, image in decoded.inputs}
    bob = [pixels["train", position] for position in range(8, 12)] + [pixels["test", 2]]
    assert sorted(bob) == [0, 1, 2, 3, 4]
    again = read_image_folder(tmp_path, PrepareOptions(clients="folder", seed=1, test_share=0.5))
    assert np.bincount(again.clients["test"]).tolist() == [5, 2]


@pytest.mark.parametrize(
    ("counts", "options", "sentence"),
    [
        ({"ann/cat": 2, "ann/dog": 2}, {"clients": "folder"}, "holds 1 folders of clients"),
        ({"ann/cat": 2, "bob/cat": 2}, {"clients": "folder"}, r"has one class only \(cat\)"),
        ({"ann/cat": 1, "bob/dog": 1}, {"clients": "folder"}, "every client in .* has one image only"),
        ({"train/cat": 1, "test/dog": 1}, {"clients": "folder"}, "train and test, which are no clients"),
        ({"cat": 2, "dog": 2}, {"clients": "folder"}, "cat has no class folders"),
        ({"cat": 2, "dog": 2}, {"clients": "who"}, "--clients who names a column, but .* say --clients folder"),
        ({"cat": 2, "dog": 2}, {"task": "regression"}, "--task has no meaning for"),
        ({"cat": 2, "dog": 2}, {"labels": "kind"}, "--labels has no meaning for"),
    ],
)
def test_bad_folders_of_clients(tmp_path: Path, counts: dict[str, int], options: dict[str, str], sentence: str) -> None:
    write_clients(tmp_path, counts)
    with pytest.raises(InvalidInput, match=sentence):
        read_image_folder(tmp_path, PrepareOptions(**options))  # type: ignore[arg-type]
