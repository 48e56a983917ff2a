"""Image files of a few well-known formats, decoded into uint8 arrays within bounds."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
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

_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # the EXIF tag of how the camera was held, and its quarter turns
_TILE_SIDES = (322, 323)  # the TIFF tags of width and length of a tile, which is decoded whole


def decode_images(
    source: Path, files: Mapping[str, Sequence[str]], channels: int, side: int, resize: bool = False
) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
    """Yield split, position and pixels (1, channels, side, side) of every file, in the order of the source."""
    places = {file: (split, position) for split, names in files.items() for position, file in enumerate(names)}
    for file, content in read_files(source, places.keys()):
        split, position = places[file]
        yield split, position, decode_image(content, f"{source / file}", channels, side, resize)[None]


def decode_image(content: bytes, place: str, channels: int, side: int, resize: bool = False) -> NDArray[np.uint8]:
    """Return an image file's pixels (channels, side, side)."""
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            warnings.simplefilter("ignore")  # of damaged metadata, which does not matter here
            _refuse_many_pixels(opened, place)
            image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
            if resize and image.size != (side, side):
                # Choice: the middle square is kept, so that nothing is stretched.
                image = ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC)
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's readers raise many types, and damaged files find all of them
        raise InvalidInput(f"{place} does not decode as an image ({_reason(error)}): replace or remove it.") from error
    if image.size != (side, side):
        raise InvalidInput(f"{place} has {image.width} x {image.height} pixels instead of {side} x {side}: replace it.")
    pixels: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8).reshape(side, side, channels)
    return pixels.transpose(2, 0, 1)


def inspect_image(path: Path) -> tuple[tuple[int, int], bool]:
    """Return an image file's width and height, and whether it is grey, from its header alone."""
    try:
        with warnings.catch_warnings(), Image.open(path, formats=FORMATS) as opened:
            warnings.simplefilter("ignore")
            _refuse_many_pixels(opened, str(path))
            size, mode = opened.size, opened.mode
            if opened.getexif().get(_ORIENTATION) in _LYING:
                size = size[::-1]
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's readers raise many types, and damaged files find all of them
        raise InvalidInput(f"{path} does not decode as an image ({_reason(error)}): replace or remove it.") from error
    if mode.startswith(_WIDE_MODES):
        raise InvalidInput(f"{path} has pixels of more than 8 bits (mode {mode}): convert it to 8 bits a channel.")
    return size, mode in GREY_MODES


def _refuse_many_pixels(opened: Image.Image, place: str) -> None:
    """Refuse an image, not yet decoded, that would take too much memory."""
    width, height = opened.size
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        tile = [int(opened.tag_v2.get(tag, 0)) for tag in _TILE_SIDES]
        width, height = max((width, height), (tile[0], tile[1]), key=math.prod)
    if width * height > MOST_PIXELS:
        raise InvalidInput(
            f"{place} has {width} x {height} pixels, more than {MOST_PIXELS // 10**6} million: scale it down."
        )


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"its format is none of {', '.join(FORMATS)}"
    return in_one_line(error) or type(error).__name__
