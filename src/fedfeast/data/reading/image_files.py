"""Image files of a few well-known formats, decoded into uint8 arrays within bounds; HEIC where it can be read."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError

from fedfeast.data.reading.sources import read_files
from fedfeast.errors import InvalidInput, in_one_line

# Choice: of the many that Pillow reads some decode other sizes than they say first, and one starts a program (037).
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
MOST_PIXELS = 64_000_000  # of the largest photograph that is scaled down; Pillow holds four bytes of each
GREY_MODES = frozenset({"1", "L", "LA"})
_WIDE_MODES = ("I", "F")  # prefixes of modes with more than eight bits a channel, which conversion would clip

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # after "ftyp", at byte 8
_HEIC_READER = "pillow_heif"
# Choice: a photo is decoded to this many times the wanted side before it is resized, six times as fast as whole.
_DECODED_SIDES = 4

_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # the EXIF tag of how the camera was held, and its quarter turns
_TILE_SIDES = (322, 323)  # the TIFF tags of width and length of a tile, which is decoded whole


@dataclass(frozen=True)
class Fault:
    """A file that is no image, and why."""

    file: str  # within its folder
    reason: str


class Undecodable(Exception):
    """Files whose contents did not decode, though their headers were sound; nothing may be made of the others yet."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(f"{len(faults)} files do not decode")
        self.faults = tuple(faults)


class NoImage(InvalidInput):
    """A file does not decode as an image."""

    def __init__(self, place: object, reason: str) -> None:
        super().__init__(f"{place} does not decode as an image ({reason}): replace or remove it.")
        self.reason = reason


def decode_images(
    source: Path,
    files: Mapping[str, Sequence[str]],
    channels: int,
    side: int,
    resize: bool = False,
    gather_faults: bool = False,
) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
    """Yield split, position and pixels (1, channels, side, side) of every file, in the order of the source.

    Files that do not decode are raised as they come, or gathered and raised together at the end.
    """
    places = {file: (split, position) for split, names in files.items() for position, file in enumerate(names)}
    faults = []
    for file, content in read_files(source, places.keys()):
        split, position = places[file]
        try:
            yield split, position, decode_image(content, f"{source / file}", channels, side, resize)[None]
        except NoImage as fault:
            if not gather_faults:
                raise
            faults.append(Fault(file, fault.reason))
    if faults:
        raise Undecodable(faults)


def decode_image(content: bytes, place: str, channels: int, side: int, resize: bool = False) -> NDArray[np.uint8]:
    """Return an image file's pixels (channels, side, side)."""
    try:
        with _opened(io.BytesIO(content), place) as opened:
            _refuse_wide(opened.mode, place)
            if resize:
                opened.draft(None, (_DECODED_SIDES * side, _DECODED_SIDES * side))  # of a JPEG, by whole eighths
            image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
            if resize and image.size != (side, side):
                # Choice: the middle square is kept, so that nothing is stretched.
                image = ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC)
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's readers raise many types, and damaged files find all of them
        raise NoImage(place, _reason(error, content)) from error
    if image.size != (side, side):
        raise InvalidInput(f"{place} has {image.width} x {image.height} pixels instead of {side} x {side}: replace it.")
    pixels: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8).reshape(side, side, channels)
    return pixels.transpose(2, 0, 1)


def inspect_image(path: Path) -> tuple[tuple[int, int], bool]:
    """Return an image file's width and height, and whether it is grey, from its header alone."""
    try:
        with _opened(path, path) as opened:
            size, mode = opened.size, opened.mode
            if opened.getexif().get(_ORIENTATION) in _LYING:
                size = size[::-1]
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's readers raise many types, and damaged files find all of them
        raise NoImage(path, _reason(error, _first_bytes(path))) from error
    _refuse_wide(mode, path)
    return size, mode in GREY_MODES


def _refuse_wide(mode: str, place: object) -> None:
    if mode.startswith(_WIDE_MODES):
        raise NoImage(place, f"its pixels have more than 8 bits, mode {mode}")


@contextmanager
def _opened(file: Path | io.BytesIO, place: object) -> Iterator[Image.Image]:
    """Open an image file that is not too large; damaged metadata does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(file, formats=_formats()) as opened:
            _refuse_many_pixels(opened, place)
            yield opened


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that are read: HEIC where the optional reader is installed."""
    if find_spec(_HEIC_READER) is None:
        return FORMATS
    import_module(_HEIC_READER).register_heif_opener()
    return (*FORMATS, "HEIF")


def _refuse_many_pixels(opened: Image.Image, place: object) -> None:
    """Refuse an image, not yet decoded, that would take too much memory."""
    width, height = opened.size
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        tile = [int(opened.tag_v2.get(tag, 0)) for tag in _TILE_SIDES]
        width, height = max((width, height), (tile[0], tile[1]), key=math.prod)
    if width * height > MOST_PIXELS:
        raise InvalidInput(
            f"{place} has {width} x {height} pixels, more than {MOST_PIXELS // 10**6} million: scale it down."
        )


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(12)
    except OSError:
        return b""


def _reason(error: Exception, content: bytes) -> str:
    if not isinstance(error, UnidentifiedImageError):
        return in_one_line(error) or type(error).__name__
    if not content:
        return "it is empty"
    if content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS and find_spec(_HEIC_READER) is None:
        return "HEIC needs pip install 'fedfeast[heic]'"
    return f"its format is none of {', '.join(FORMATS)}"
