"""RandAugment on torchvision's 31-bin scale, batched over examples (uint8 images, nearest resampling, black fill)."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

NUM_BINS = 31

OPERATIONS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
GEOMETRIC = frozenset({"shear_x", "shear_y", "translate_x", "translate_y", "rotate"})
SIGNED = GEOMETRIC | {"brightness", "color", "contrast", "sharpness"}


@dataclass(frozen=True, eq=False)
class RandAugmentPlan:
    """Which operations each example gets, with which sign; the magnitude is one for all."""

    operations: np.ndarray  # (examples, num_ops), positions in OPERATIONS
    signs: np.ndarray  # (examples, num_ops), -1 or 1
    magnitude: int  # bin, 0 to 30

    def select(self, examples: slice) -> "RandAugmentPlan":
        """Return the plan of a range of examples."""
        return RandAugmentPlan(self.operations[examples], self.signs[examples], self.magnitude)


def draw_randaugment(
    num_examples: int, num_ops: int, magnitude: int, generator: np.random.Generator
) -> RandAugmentPlan:
    """Draw operations uniformly with replacement, and a sign for each."""
    operations = generator.integers(0, len(OPERATIONS), (num_examples, num_ops))
    signs = 1 - 2 * generator.integers(0, 2, (num_examples, num_ops))
    return RandAugmentPlan(operations, signs, magnitude)


def apply_randaugment(images: Tensor, plan: RandAugmentPlan) -> Tensor:
    """Return the augmented images (examples, channels, height, width); examples are grouped by operation."""
    images = images.clone()
    for turn in range(plan.operations.shape[1]):
        for position, operation in enumerate(OPERATIONS):
            # Grouped on the host from the plan: no wait for the device.
            members = np.flatnonzero(plan.operations[:, turn] == position)
            if operation == "identity" or not len(members):
                continue
            strength = magnitude_of(operation, plan.magnitude, images.shape[3], images.shape[2])
            signs = plan.signs[members, turn] if operation in SIGNED else np.ones(len(members))
            chosen = torch.from_numpy(members).to(images.device)
            images[chosen] = apply_operation(images[chosen], operation, strength * signs)
    return images


def magnitude_of(operation: str, magnitude_bin: int, width: int, height: int) -> float:
    """Return an operation's strength at a bin: a shear, pixels, degrees, a factor's change, bits or a threshold."""
    share = magnitude_bin / (NUM_BINS - 1)
    match operation:
        case "shear_x" | "shear_y":
            return 0.3 * share
        case "translate_x":
            return float(int(150.0 / 331.0 * width * share))
        case "translate_y":
            return float(int(150.0 / 331.0 * height * share))
        case "rotate":
            return 30.0 * share
        case "brightness" | "color" | "contrast" | "sharpness":
            return 0.9 * share
        case "posterize":
            return 8.0 - round(magnitude_bin / ((NUM_BINS - 1) / 4))
        case "solarize":
            return 255.0 - 8.5 * magnitude_bin  # exact, as a threshold on integers must be
        case _:
            return 0.0


def apply_operation(images: Tensor, operation: str, magnitudes: np.ndarray) -> Tensor:
    """Apply one operation to a batch, each example with its own signed magnitude."""
    if operation in GEOMETRIC:
        return _resample(images, _inverse_maps(operation, magnitudes, images.shape[3], images.shape[2]))
    strengths = torch.from_numpy(np.asarray(magnitudes, dtype=np.float32)).to(images.device)[:, None, None, None]
    match operation:
        case "brightness":
            return _blend(torch.zeros_like(images), images, 1.0 + strengths)
        case "color":
            return _blend(_grey(images).expand_as(images), images, 1.0 + strengths)
        case "contrast":
            return _blend(_mean_grey(images).expand_as(images), images, 1.0 + strengths)
        case "sharpness":
            return _blend(_smoothed(images), images, 1.0 + strengths)
        case "posterize":
            step = torch.exp2(8.0 - strengths).to(torch.int32)
            return (images.to(torch.int32) // step * step).to(torch.uint8)
        case "solarize":
            return torch.where(images < strengths, images, 255 - images)
        case "autocontrast":
            return _autocontrast(images)
        case "equalize":
            return _equalize(images)
        case _:
            return images


def _inverse_maps(operation: str, magnitudes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Return (examples, 2, 3) matrices from output to input coordinates of pixel centres."""
    maps = np.tile(np.eye(2, 3), (len(magnitudes), 1, 1))
    match operation:
        case "shear_x":
            maps[:, 0, 1] = magnitudes
        case "shear_y":
            maps[:, 1, 0] = magnitudes
        case "translate_x":
            maps[:, 0, 2] = -magnitudes
        case "translate_y":
            maps[:, 1, 2] = -magnitudes
        case "rotate":
            angles = np.deg2rad(-magnitudes)
            maps[:, 0, 0] = maps[:, 1, 1] = np.cos(angles)
            maps[:, 0, 1], maps[:, 1, 0] = np.sin(angles), -np.sin(angles)
            centre = np.array([width / 2, height / 2])
            maps[:, :, 2] = centre - maps[:, :, :2] @ centre
    return maps


def _resample(images: Tensor, maps: np.ndarray) -> Tensor:
    """Take every output pixel from the input pixel its centre falls into; black where there is none."""
    height, width = images.shape[2:]
    centres_x, centres_y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    centres = np.stack([centres_x.ravel(), centres_y.ravel(), np.ones(height * width)])  # (3, pixels)
    x, y = np.floor(maps @ centres).astype(np.int64).transpose(1, 0, 2)  # (examples, pixels) each
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    sources = torch.from_numpy(np.where(inside, y * width + x, 0)).to(images.device)[:, None]
    taken = images.flatten(2).gather(2, sources.expand(-1, images.shape[1], -1))
    return (taken * torch.from_numpy(inside).to(images.device)[:, None]).reshape(images.shape)


def _blend(degenerate: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """Return degenerate + factor * (image - degenerate), cut off like Pillow's blend."""
    start = degenerate.float()
    return (start + factors * (images.float() - start)).clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Return Pillow's luma (examples, 1, height, width)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.to(torch.int32).unbind(dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).to(torch.uint8)[:, None]


def _mean_grey(images: Tensor) -> Tensor:
    return (_grey(images).double().mean(dim=(1, 2, 3), keepdim=True) + 0.5).to(torch.uint8)


def _smoothed(images: Tensor) -> Tensor:
    """Return Pillow's SMOOTH filter; the outermost pixels stay."""
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5.0
    inner = F.conv2d(images.float(), (kernel / 13).expand(channels, 1, 3, 3), groups=channels)
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = (inner + 0.5).clamp_(0, 255).to(torch.uint8)
    return smoothed


def _autocontrast(images: Tensor) -> Tensor:
    """Stretch every channel to 0..255; a channel of one level stays."""
    low = images.amin(dim=(2, 3), keepdim=True).double()
    high = images.amax(dim=(2, 3), keepdim=True).double()
    stretched = ((images.double() - low) * (255.0 / (high - low).clamp(min=1.0))).clamp_(0, 255)
    return torch.where(high > low, stretched.to(torch.uint8), images)


def _equalize(images: Tensor) -> Tensor:
    """Even out every channel's histogram by ImageOps.equalize's integer rule."""
    levels = images.flatten(2).to(torch.int64)  # (examples, channels, pixels)
    histogram = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    last = histogram.gather(2, levels.amax(dim=2, keepdim=True))  # count of the highest level present
    step = (levels.shape[2] - last) // 255  # (examples, channels, 1)
    below = histogram.cumsum(dim=2) - histogram
    table = torch.div(step // 2 + below, step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    equalized = table.gather(2, levels).to(torch.uint8).reshape(images.shape)
    return torch.where(step[..., None] > 0, equalized, images)
