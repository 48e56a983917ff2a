import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfeast.data.reading.image_files import decode_image, decode_images, inspect_image
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = named_generator(width, "noise").integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1"])
def test_any_mode_becomes_colour_or_grey(mode: str) -> None:
    image = noise(8, 8, mode)
    colour = decode_image(encoded(image), "here", 3, 8)
    assert colour.shape == (3, 8, 8)
    assert np.array_equal(colour.transpose(1, 2, 0), np.asarray(image.convert("RGB")))
    grey = decode_image(encoded(image), "here", 1, 8)
    assert np.array_equal(grey[0], np.asarray(image.convert("L")))


def test_resizing_keeps_the_middle_square() -> None:
    wide = Image.new("L", (30, 10), 0)
    wide.paste(200, (10, 0, 20, 10))
    resized = decode_image(encoded(wide), "here", 1, 5, resize=True)
    assert np.abs(resized.astype(int) - 200).max() < 20  # the black sides shine through at the edge alone


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    image, exif = noise(8, 4), Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(image, exif=exif))
    assert inspect_image(path) == ((4, 8), False)
    upright = np.rot90(np.asarray(image), -1)[2:6]
    assert np.array_equal(decode_image(path.read_bytes(), "here", 3, 4, resize=True).transpose(1, 2, 0), upright)


def test_positions_follow_the_files_of_each_split(tmp_path: Path) -> None:
    for name, level in (("b.png", 2), ("a.png", 1), ("c.png", 3)):
        Image.new("L", (4, 4), level).save(tmp_path / name)
    files = {"train": ["b.png", "a.png"], "test": ["c.png"]}
    found = {(split, at): int(pixels[0, 0, 0, 0]) for split, at, pixels in decode_images(tmp_path, files, 1, 4)}
    assert found == {("train", 0): 2, ("train", 1): 1, ("test", 0): 3}


def test_what_does_not_decode_is_named(tmp_path: Path) -> None:
    whole = encoded(noise(8, 8), "JPEG")
    for content in (b"", b"notes", whole[: len(whole) // 2]):
        with pytest.raises(InvalidInput, match=r"here does not decode as an image \(.+\): replace or remove it"):
            decode_image(content, "here", 3, 8)
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(InvalidInput, match=r"notes.txt does not decode as an image \(its format is unknown\)"):
        inspect_image(tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match=r"here has 8 x 8 pixels instead of 16 x 16"):
        decode_image(whole, "here", 3, 16)


def test_wide_pixels_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InvalidInput, match="more than 8 bits"):
        inspect_image(tmp_path / "deep.png")
