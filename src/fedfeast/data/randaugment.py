"""RandAugment (Cubuk et al., 2020) on batches of uint8 images, with the operations and the 31-bin scale of torchvision.

Every operation computes what Pillow computes, in integers or in separately rounded floats, so that a plan gives
the same bytes on every device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.errors import InvalidInput

GEOMETRIC_OPERATIONS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
ENHANCEMENTS = ("Brightness", "Color", "Contrast", "Sharpness")
SIGNED_OPERATIONS = GEOMETRIC_OPERATIONS + ENHANCEMENTS
OPERATIONS = ("Identity", *SIGNED_OPERATIONS, "Posterize", "Solarize", "AutoContrast", "Equalize")
LAST_BIN = 30


@dataclass(frozen=True, eq=False)
class RandAugmentPlan:
    """Which operations each example goes through, drawn before any pixel is touched."""

    operations: NDArray[np.int64]  # (examples, num_ops), indices into OPERATIONS
    signs: NDArray[np.int64]  # (examples, num_ops), -1 or 1, read by the signed operations only
    magnitude: int  # bin 0..30

    def select(self, examples: slice) -> "RandAugmentPlan":
        """Return the plan of a range of examples."""
        return replace(self, operations=self.operations[examples], signs=self.signs[examples])

    @classmethod
    def concatenate(cls, plans: Sequence["RandAugmentPlan"]) -> "RandAugmentPlan":
        """Return the plan of all examples, one plan's after another's; all have the same magnitude."""
        operations = np.concatenate([plan.operations for plan in plans])
        return cls(operations, np.concatenate([plan.signs for plan in plans]), plans[0].magnitude)


def draw_randaugment(
    num_examples: int, num_ops: int, magnitude: int, generator: np.random.Generator
) -> RandAugmentPlan:
    """Draw num_ops operations, with replacement, and their signs for every example."""
    if num_ops < 0:
        raise InvalidInput(f"RandAugment cannot apply {num_ops} operations; give 0 or more.")
    if not 0 <= magnitude <= LAST_BIN:
        raise InvalidInput(f"RandAugment magnitude {magnitude} is off the scale; give 0 to {LAST_BIN}.")
    shape = (num_examples, num_ops)
    operations = generator.integers(len(OPERATIONS), size=shape)
    return RandAugmentPlan(operations, 2 * generator.integers(2, size=shape) - 1, magnitude)


def apply_randaugment(images: Tensor, plan: RandAugmentPlan) -> Tensor:
    """Return the uint8 images (examples, channels, height, width) after every operation of the plan, in order."""
    assert images.dtype == torch.uint8
    assert len(images) == len(plan.operations)
    for operations, signs in zip(plan.operations.T, plan.signs.T, strict=True):
        images = _apply_one_each(images, operations, signs, plan.magnitude)
    return images


def magnitude_value(operation: str, magnitude: int, height: int, width: int) -> float:
    """Return the unsigned value of a bin in the operation's own unit: slope, pixels, degrees, gain, bits or level."""
    share = magnitude / LAST_BIN
    match operation:
        case "ShearX" | "ShearY":
            return 0.3 * share
        case "TranslateX" | "TranslateY":
            return float(int(150 / 331 * (width if operation == "TranslateX" else height) * share))
        case "Rotate":
            return 30.0 * share
        case "Posterize":
            return 8.0 - round(4 * share)
        case "Solarize":
            return 255.0 * (LAST_BIN - magnitude) / LAST_BIN
    return 0.9 * share if operation in ENHANCEMENTS else 0.0


def sample_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the pixels at integer positions that broadcast to (examples, height, width); outside is black."""
    channels, height, width = images.shape[1:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    source = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)  # (examples, height, width)
    index = source.long().flatten(1).unsqueeze(1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, index).view(images.shape) * inside.unsqueeze(1)


def send(values: NDArray[np.generic], like: Tensor) -> Tensor:
    """Return an array of a plan on the device of a tensor, without waiting for that device."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device, non_blocking=True)


def _apply_one_each(images: Tensor, operations: NDArray[np.int64], signs: NDArray[np.int64], magnitude: int) -> Tensor:
    height, width = images.shape[-2:]
    result = images.clone()
    matrices = np.zeros((len(operations), 6))
    is_geometric = np.zeros(len(operations), dtype=bool)
    # Grouped on the CPU: a mask on the device would have to be read back.
    for index, operation in enumerate(OPERATIONS):
        examples = np.flatnonzero(operations == index)
        if operation == "Identity" or not examples.size:
            continue
        magnitudes = np.full(examples.size, magnitude_value(operation, magnitude, height, width))
        if operation in SIGNED_OPERATIONS:
            magnitudes *= signs[examples]
        if operation in GEOMETRIC_OPERATIONS:
            matrices[examples] = _output_to_input(operation, magnitudes, height, width)
            is_geometric[examples] = True
        else:
            selected = send(examples, images)
            changed = _COLOUR_OPERATIONS[operation](images.index_select(0, selected), magnitudes)
            result.index_copy_(0, selected, changed)
    if is_geometric.any():
        selected = send(np.flatnonzero(is_geometric), images)
        changed = _resample(images.index_select(0, selected), matrices[is_geometric])
        result.index_copy_(0, selected, changed)
    return result


def _output_to_input(operation: str, magnitudes: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Return (examples, 6) affine coefficients: input x = a x + b y + c, input y = d x + e y + f."""
    zero, one = np.zeros(len(magnitudes)), np.ones(len(magnitudes))
    match operation:
        case "ShearX":
            coefficients = (one, magnitudes, zero, zero, one, zero)
        case "ShearY":
            coefficients = (one, zero, zero, magnitudes, one, zero)
        case "TranslateX":
            coefficients = (one, zero, -magnitudes, zero, one, zero)
        case "TranslateY":
            coefficients = (one, zero, zero, zero, one, -magnitudes)
        case _:  # Rotate: degrees, counter-clockwise around the centre
            cosine, sine = np.cos(np.radians(magnitudes)), -np.sin(np.radians(magnitudes))
            x, y = width / 2, height / 2
            coefficients = (cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y)
    return np.stack(coefficients, axis=1)


def _resample(images: Tensor, matrices: NDArray[np.float64]) -> Tensor:
    """Return for each output pixel the input pixel that its centre falls into."""
    height, width = images.shape[-2:]
    a, b, c, d, e, f = matrices.T
    at_centres = np.stack((a, b, c + (a + b) / 2, d, e, f + (d + e) / 2))
    # 16.16 fixed point, as in Pillow: a centre on the edge of a pixel falls the same way on every device.
    fixed = send(np.floor(at_centres * 65536 + 0.5).astype(np.int32), images)
    a, b, c, d, e, f = fixed[:, :, None, None]  # each (examples, 1, 1)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]
    return sample_pixels(images, rows=(d * x + e * y + f) >> 16, columns=(a * x + b * y + c) >> 16)


def _blend(degenerate: Tensor, images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    """Return degenerate + (1 + magnitude) (images - degenerate), clipped and truncated to uint8."""
    factors = send((1 + magnitudes).astype(np.float32), images).view(-1, 1, 1, 1)
    base = degenerate.float()
    return (base + factors * (images.float() - base)).clamp_(0, 255).to(torch.uint8)


def _grayscale(images: Tensor) -> Tensor:
    """Return the luma (examples, 1, height, width) of ITU-R 601-2 in 16-bit fixed point, as int32."""
    levels = images.int()
    if images.shape[1] == 1:
        return levels
    weighted = 19595 * levels[:, 0:1] + 38470 * levels[:, 1:2] + 7471 * levels[:, 2:3]
    return (weighted + 0x8000) >> 16


def _brightness(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    return _blend(torch.zeros_like(images), images, magnitudes)


def _color(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    return _blend(_grayscale(images), images, magnitudes)


def _contrast(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    num_pixels = images.shape[-2] * images.shape[-1]
    total = _grayscale(images).sum(dim=(1, 2, 3), keepdim=True)
    return _blend((2 * total + num_pixels) // (2 * num_pixels), images, magnitudes)


def _sharpness(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    levels = images.short()
    rows = levels[..., :-2, :] + levels[..., 1:-1, :] + levels[..., 2:, :]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    # Pillow's SMOOTH kernel, 5 in the middle and 1 around it, over 13, rounded; the border stays as it is.
    smooth = levels.clone()
    smooth[..., 1:-1, 1:-1] = (2 * (box + 4 * levels[..., 1:-1, 1:-1]) + 13) // 26
    return _blend(smooth, images, magnitudes)


def _posterize(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    dropped_bits = 8 - magnitudes.astype(np.int64)
    return images & send((256 - 2**dropped_bits).astype(np.uint8), images).view(-1, 1, 1, 1)


def _solarize(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    thresholds = send(np.ceil(magnitudes).astype(np.int16), images).view(-1, 1, 1, 1)
    return torch.where(images < thresholds, images, 255 - images)


def _autocontrast(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    lowest = images.amin(dim=(2, 3)).double().unsqueeze(-1)  # (examples, channels, 1)
    span = images.amax(dim=(2, 3)).double().unsqueeze(-1) - lowest
    levels = torch.arange(256, dtype=torch.float64, device=images.device)
    # float64 and this order of operations decide the truncation, hence Pillow's.
    scale = torch.full_like(span, 255) / span.clamp(min=1)
    stretched = (levels * scale - lowest * scale).clamp(0, 255)
    return _look_up(images, torch.where(span > 0, stretched, levels))


def _equalize(images: Tensor, magnitudes: NDArray[np.float64]) -> Tensor:
    examples, channels, height, width = images.shape
    offsets = 256 * torch.arange(examples * channels, device=images.device).unsqueeze(1)
    positions = (images.reshape(examples * channels, -1) + offsets).flatten()
    counts = torch.zeros(256 * examples * channels, dtype=torch.int64, device=images.device)
    counts = counts.scatter_add_(0, positions, torch.ones_like(positions)).view(examples, channels, 256)
    brightest = images.amax(dim=(2, 3)).long().unsqueeze(-1)  # (examples, channels, 1)
    step = (height * width - counts.gather(2, brightest)) // 255
    below = counts.cumsum(dim=2) - counts
    flattened = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return _look_up(images, torch.where(step > 0, flattened, torch.arange(256, device=images.device)))


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Return the images with each level replaced by its entry in a table (examples, channels, 256)."""
    return tables.to(torch.uint8).gather(2, images.flatten(2).long()).view(images.shape)


_COLOUR_OPERATIONS: dict[str, Callable[[Tensor, NDArray[np.float64]], Tensor]] = {
    "Brightness": _brightness,
    "Color": _color,
    "Contrast": _contrast,
    "Sharpness": _sharpness,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
}
