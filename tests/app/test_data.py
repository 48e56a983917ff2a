import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess

import numpy as np
import pytest
from PIL import Image

from fedfeast.randomness import named_generator

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of ten classes of grey 8x8 images, thirty each."""
    folder = tmp_path_factory.mktemp("photos")
    for label in range(10):
        (folder / f"class-{label}").mkdir()
        for number in range(30):
            noise = named_generator(label, number).integers(0, 60, (8, 8))
            pixels = (noise + 19 * label).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class-{label}" / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def data(fedfeast: Command, tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """Return a data folder in which the photos are prepared as `shades`."""
    folder = tmp_path_factory.mktemp("data")
    done = fedfeast("data", "prepare", "shades", "--from", photos, "--folder", folder)
    assert done.returncode == 0, done.stderr
    assert "shades is prepared: 10 classes, 8 x 8 grey images, 240 train, 60 test." in done.stdout
    assert "data.name=shades" in done.stdout
    return folder


def test_the_list_for_people_and_programs(fedfeast: Command, data: Path) -> None:
    rows = {row["name"]: row for row in json.loads(fedfeast("data", "list", "--folder", data, "--json").stdout)}
    assert rows["shades"]["state"] == "prepared"
    assert rows["tinyimagenet"]["state"] == "absent"
    shown = fedfeast("data", "list", "--folder", data).stdout
    for part in ("digits", "embedded", "shades", "prepared", "absent", "fedfeast data fetch cinic10"):
        assert part in shown


@pytest.mark.usefixtures("hurried")
def test_plan_and_training_on_own_images(fedfeast: Command, data: Path, tmp_path: Path, short: list[str]) -> None:
    own = ["--set", "data.name=shades", "--set", f"data.folder={data}", "--set", "population.num_clients=20"]
    own += ["--set", "data.validation_examples=40", "--set", "data.calibration_examples=20"]
    plan = fedfeast("plan", "digits", *own, "--json")
    assert plan.returncode == 0, plan.stderr
    assert json.loads(plan.stdout)["data"]["client_examples"] == 180
    done = fedfeast("train", "digits", "--out", tmp_path / "run", *own, *short, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished_rounds"] == 2


def test_prepare_in_json_with_a_size(fedfeast: Command, photos: Path, tmp_path: Path) -> None:
    words = ("data", "prepare", "large", "--from", photos, "--size", "12", "--test-share", "0.5", "--folder", tmp_path)
    content = json.loads(fedfeast(*words, "--json").stdout)
    assert (content["side"], content["examples"]) == (12, {"train": 150, "test": 150})
    again = fedfeast(*words, "--replace", "--json")
    assert json.loads(again.stdout)["arrays"] == content["arrays"]


def test_files_that_are_no_images_are_skipped_named_and_counted(
    fedfeast: Command, photos: Path, tmp_path: Path
) -> None:
    mixed = Path(copytree(photos, tmp_path / "mixed"))
    image = (mixed / "class-0" / "0.png").read_bytes()
    for number in range(22):
        (mixed / "class-1" / f"note-{number:02}.txt").write_text("no image")
    (mixed / "class-2" / "cut.png").write_bytes(image[:-25])  # only decoding shows it
    words = ("data", "prepare", "mixed", "--from", mixed, "--folder", tmp_path / "data")
    done = fedfeast(*words)
    assert done.returncode == 0, done.stderr
    assert "mixed is prepared: 10 classes, 8 x 8 grey images, 240 train, 60 test." in done.stdout
    assert (
        "23 files were skipped:\n  class-1/note-00.txt: its format is none of PNG, JPEG, WEBP, BMP, GIF, PPM, TIFF\n"
        in done.stdout
    )
    assert done.stdout.endswith(
        "  class-1/note-19.txt: its format is none of PNG, JPEG, WEBP, BMP, GIF, PPM, TIFF\n  and 3 more\n"
    )
    content = json.loads(fedfeast(*words, "--replace", "--json").stdout)
    assert (content["skipped"]["count"], len(content["skipped"]["files"])) == (23, 20)
    whole = json.loads((tmp_path / "data" / "mixed" / "dataset.json").read_text())
    assert whole["skipped"] == content["skipped"]


def test_prepare_a_table_with_clients(fedfeast: Command, tmp_path: Path) -> None:
    rows = [f"{'ann' if number < 20 else 'bob'},{number},{number % 3},{number % 2}" for number in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["who,size,weight,kind", *rows]))
    words = ["data", "prepare", "mine", "--from", tmp_path / "mine.csv", "--clients", "who", "--labels", "kind"]
    done = fedfeast(*words, "--folder", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert "mine is prepared: 2 classes, 2 numbers, 32 train, 8 test, 2 clients." in done.stdout
    content = json.loads(fedfeast(*words, "--replace", "--folder", tmp_path / "data", "--json").stdout)
    assert (content["client_names"], content["kind"], content["shape"]) == (["ann", "bob"], "numbers", [2])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["prepare", "shades", "--from", "PHOTOS"], "is already prepared"),
        (["prepare", "cifar10", "--from", "PHOTOS"], "cifar10 is the name of an official data set"),
        (["prepare", "new", "--from", "/nowhere"], "--from /nowhere is no folder"),
        (["prepare", "new", "--from", "PHOTOS/class-1"], "has no class folders"),
        (["prepare", "new", "--from", "PHOTOS", "--size", "1"], "--size 1"),
        (["prepare", "new"], "'new' is no official data set"),
        (["prepare", "a b", "--from", "PHOTOS"], "'a b' is no name"),
        (["prepare", "new", "--from", "PHOTOS", "--clients", "who"], "say --clients folder"),
        (["prepare", "new", "--from", "PHOTOS", "--task", "guess"], "--task guess is no task"),
        (["fetch", "audiomnist"], "its publisher states no checksum"),
        (["fetch", "shades"], "'shades' is no data set that can be fetched"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, refused: Callable[..., None], photos: Path, data: Path
) -> None:
    refused(sentence, "data", *(word.replace("PHOTOS", str(photos)) for word in words), "--folder", data)
    assert [path.name for path in data.iterdir()] == ["shades"]


def test_a_recipe_with_an_unknown_data_set_lists_the_choices(refused: Callable[..., None], data: Path) -> None:
    words = ("plan", "digits", "--set", "data.name=shade", "--set", f"data.folder={data}")
    refused("data.name = 'shade' is no data set: choose one of digits, synthetic, cifar10", *words)
    refused("shades", *words)


def test_damaged_arrays_end_training_in_one_sentence(fedfeast: Command, photos: Path, tmp_path: Path) -> None:
    fedfeast("data", "prepare", "hurt", "--from", photos, "--folder", tmp_path)
    (tmp_path / "hurt" / "train_images.npy").write_bytes(b"short")
    own = ["--set", "data.name=hurt", "--set", f"data.folder={tmp_path}", "--set", "data.validation_examples=40"]
    done = fedfeast("train", "digits", "--out", tmp_path / "run", *own)
    assert done.returncode == 2
    assert "train_images.npy has 5 bytes instead of" in done.stderr
    assert "Traceback" not in done.stderr
