import io
import resource
import struct
import sys
import zlib
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from fedfeast.data.reading.image_files import (
    FORMATS,
    NoImage,
    Undecodable,
    _formats,
    decode_image,
    decode_images,
    inspect_image,
)
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
    with pytest.raises(InvalidInput, match=r"notes.txt does not decode as an image \(its format is none of PNG, JPEG"):
        inspect_image(tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match=r"here has 8 x 8 pixels instead of 16 x 16"):
        decode_image(whole, "here", 3, 16)


def test_wide_pixels_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InvalidInput, match="more than 8 bits"):
        inspect_image(tmp_path / "deep.png")
    with pytest.raises(NoImage, match="more than 8 bits"):
        decode_image((tmp_path / "deep.png").read_bytes(), "here", 1, 4)


def blank_png(width: int, height: int) -> bytes:
    """Return a file of a few bytes for a thousand pixels each, without ever having them in memory."""
    packer, row = zlib.compressobj(9), bytes(1 + width)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(one)) + kind + one + struct.pack(">I", zlib.crc32(kind + one)) for kind, one in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def most_memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_an_icon_is_not_opened_whatever_it_holds(tmp_path: Path) -> None:
    inside = blank_png(9_000, 9_000)
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 8, 8, 0, 0, 1, 32, len(inside), 22) + inside
    (tmp_path / "small.ico").write_bytes(icon)
    before = most_memory_mb()
    with pytest.raises(InvalidInput, match="its format is none of PNG, JPEG, WEBP, BMP, GIF, PPM, TIFF"):
        decode_image(icon, "here", 3, 8)
    with pytest.raises(InvalidInput, match="its format is none of"):
        inspect_image(tmp_path / "small.ico")
    assert most_memory_mb() - before < 40


def test_postscript_is_given_to_no_interpreter() -> None:
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    with pytest.raises(InvalidInput, match="its format is none of"):
        decode_image(content, "here", 3, 8)


def test_more_pixels_than_a_photograph_has_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "huge.png").write_bytes(blank_png(12_000, 6_000))
    before = most_memory_mb()
    with pytest.raises(InvalidInput, match=r"huge.png has 12000 x 6000 pixels, more than 64 million: scale it down"):
        inspect_image(tmp_path / "huge.png")
    with pytest.raises(InvalidInput, match="here has 12000 x 6000 pixels"):
        decode_image((tmp_path / "huge.png").read_bytes(), "here", 3, 8, resize=True)
    assert most_memory_mb() - before < 40


def test_a_tile_that_is_larger_than_its_image_counts() -> None:
    values = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 277: 1, 322: 16_000, 323: 16_000, 324: 8, 325: 8}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    tiff = b"II*\0" + struct.pack("<I", 16) + bytes(8) + struct.pack("<H", len(values)) + entries + bytes(4)
    with pytest.raises(InvalidInput, match="here has 16000 x 16000 pixels"):
        decode_image(tiff, "here", 1, 8)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(encoded(noise(8, 8, "P" if kind == "GIF" else "RGB"), kind))
    assert inspect_image(tmp_path / "image")[0] == (8, 8)
    assert decode_image((tmp_path / "image").read_bytes(), "here", 3, 8).shape == (3, 8, 8)


def test_damaged_images_are_decoded_or_named() -> None:
    originals = [encoded(noise(8, 8, "P" if kind == "GIF" else "RGB"), kind) for kind in FORMATS]
    sentences: list[str] = []
    before = most_memory_mb()
    for number in range(100):
        generator = named_generator(number, "damaged image")
        content = bytearray(originals[number % len(originals)])
        for _ in range(generator.integers(1, 8)):
            content[generator.integers(len(content))] = generator.integers(256)
        if number % 5 == 0:
            del content[generator.integers(len(content)) :]
        try:
            assert decode_image(bytes(content), "here", 3, 8, resize=True).shape == (3, 8, 8)
        except InvalidInput as error:
            sentences.append(str(error))
    assert 20 < len(sentences) < 95
    assert all(sentence.startswith("here ") and len(sentence.splitlines()) == 1 for sentence in sentences)
    assert most_memory_mb() - before < 300


def test_faults_are_raised_at_once_or_together_at_the_end(tmp_path: Path) -> None:
    whole = encoded(noise(8, 8), "JPEG")
    for name, content in (("a.jpg", whole[:-30]), ("b.jpg", whole), ("c.jpg", whole[:-40])):
        (tmp_path / name).write_bytes(content)
    files = {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    with pytest.raises(InvalidInput, match=r"a\.jpg does not decode"):
        next(decode_images(tmp_path, files, 3, 8))
    decoded = decode_images(tmp_path, files, 3, 8, gather_faults=True)
    assert next(decoded)[:2] == ("train", 1)
    with pytest.raises(Undecodable) as raised:
        next(decoded)
    assert [fault.file for fault in raised.value.faults] == ["a.jpg", "c.jpg"]
    assert all("truncated" in fault.reason for fault in raised.value.faults)


def test_a_large_photo_is_decoded_smaller_and_looks_the_same() -> None:
    image = noise(16, 16).resize((800, 800), Image.Resampling.BICUBIC)
    content = encoded(image, "JPEG", quality=95)
    whole = np.asarray(Image.open(io.BytesIO(content)).resize((16, 16), Image.Resampling.BICUBIC)).astype(int)
    small = decode_image(content, "here", 3, 16, resize=True).transpose(1, 2, 0).astype(int)
    assert np.abs(whole - small).mean() < 2


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


@pytest.fixture
def fresh_formats() -> Iterator[None]:
    """Forget, before and after, whether HEIC is read."""
    known, order = dict(Image.OPEN), list(Image.ID)
    _formats.cache_clear()
    yield
    Image.OPEN.clear()
    Image.OPEN.update(known)
    Image.ID[:] = order
    _formats.cache_clear()


@pytest.mark.usefixtures("fresh_formats")
def test_heic_names_the_extra_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("fedfeast.data.reading.image_files.find_spec", lambda name: None)
    (tmp_path / "IMG_1.HEIC").write_bytes(HEIC)
    with pytest.raises(InvalidInput, match=r"HEIC needs pip install 'fedfeast\[heic\]'"):
        inspect_image(tmp_path / "IMG_1.HEIC")
    with pytest.raises(InvalidInput, match=r"HEIC needs pip install 'fedfeast\[heic\]'"):
        decode_image(HEIC, "here", 3, 8)


@pytest.mark.usefixtures("fresh_formats")
def test_heic_is_read_where_its_reader_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_heic(file: io.BytesIO, name: str | bytes) -> Image.Image:
        return Image.new("RGB", (8, 6), (1, 2, 3))

    reader = ModuleType("pillow_heif")  # stands in for the library
    reader.__spec__ = ModuleSpec("pillow_heif", None)
    register = Image.register_open
    vars(reader)["register_heif_opener"] = lambda: register("HEIF", open_heic, lambda start: start[4:8] == b"ftyp")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pillow_heif", reader)
    (tmp_path / "IMG_1.HEIC").write_bytes(HEIC)
    assert inspect_image(tmp_path / "IMG_1.HEIC") == ((8, 6), False)
    assert decode_image(HEIC, "here", 3, 4, resize=True)[:, 0, 0].tolist() == [1, 2, 3]
