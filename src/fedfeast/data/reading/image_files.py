"""Image files of any format that Pillow reads, decoded into uint8 arrays."""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedfeast.data.reading.sources import read_files
from fedfeast.errors import InvalidInput

GREY_MODES = frozenset({"1", "L", "LA"})
_WIDE_MODES = ("I", "F")  # prefixes of modes with more than eight bits a channel, which conversion would clip

_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # the EXIF tag of how the camera was held, and its quarter turns


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
        with warnings.catch_warnings(), Image.open(io.BytesIO(content)) as opened:
            warnings.simplefilter("ignore")  # of damaged metadata, which does not matter here
            image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
            if resize and image.size != (side, side):
                # Choice: the middle square is kept, so that nothing is stretched.
                image = ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{place} does not decode as an image ({_reason(error)}): replace or remove it.") from error
    if image.size != (side, side):
        raise InvalidInput(f"{place} has {image.width} x {image.height} pixels instead of {side} x {side}: replace it.")
    pixels: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8).reshape(side, side, channels)
    return pixels.transpose(2, 0, 1)


def inspect_image(path: Path) -> tuple[tuple[int, int], bool]:
    """Return an image file's width and height, and whether it is grey, from its header alone."""
    try:
        with warnings.catch_warnings(), Image.open(path) as opened:
            warnings.simplefilter("ignore")
            size, mode = opened.size, opened.mode
            if opened.getexif().get(_ORIENTATION) in _LYING:
                size = size[::-1]
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{path} does not decode as an image ({_reason(error)}): replace or remove it.") from error
    if mode.startswith(_WIDE_MODES):
        raise InvalidInput(f"{path} has pixels of more than 8 bits (mode {mode}): convert it to 8 bits a channel.")
    return size, mode in GREY_MODES


def _reason(error: Exception) -> str:
    return "its format is unknown" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__
