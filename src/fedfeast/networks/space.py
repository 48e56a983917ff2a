"""The elastic ResNet's search space and one architecture in it (Sec. 3.2)."""

from dataclasses import dataclass

from fedfeast.errors import InvalidInput

LARGEST = 1_000_000  # channels, blocks or ratios: beyond this a value is a slip of the pen


@dataclass(frozen=True)
class Architecture:
    """One network of the space: per stage extra blocks and expansion; per stem and stage a width index."""

    depths: tuple[int, ...]
    expansions: tuple[float, ...]
    width_indices: tuple[int, ...]  # [0] is the stem's


def round_channels(channels: float, divisor: int = 8) -> int:
    """Return the nearest multiple of the divisor that keeps at least 90 % of the channels."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


@dataclass(frozen=True)
class SearchSpace:
    """All architectures of one elastic ResNet; the defaults are the paper's CIFAR-100 space."""

    stem_channels: int = 64
    stage_channels: tuple[int, ...] = (128, 256, 512, 1024)
    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8)  # blocks beyond a stage's first
    expansions: tuple[float, ...] = (0.10, 0.14, 0.18, 0.22, 0.25)
    widths: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    stem_stride: int = 1
    stage_strides: tuple[int, ...] = (1, 2, 2, 2)
    image_size: int = 32
    image_channels: int = 3
    classes: int = 100
    channel_divisor: int = 8

    def __post_init__(self) -> None:
        if len(self.stage_strides) != self.num_stages:
            raise InvalidInput(
                f"network.stage_strides has {len(self.stage_strides)} entries for {self.num_stages} stages: "
                "give one stride per entry of network.stage_channels."
            )
        for name in ("stage_channels", "depths", "expansions", "widths"):
            values = getattr(self, name)
            if not values or min(values) < 0 or (name != "depths" and min(values) == 0) or not max(values) < LARGEST:
                raise InvalidInput(
                    f"network.{name} = {list(values)}: give at least one value, all positive and finite."
                )
        for name in ("depths", "expansions", "widths"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise InvalidInput(f"network.{name} = {list(values)}: list each choice once, in rising order.")
        for name in ("stem_channels", "stem_stride", "image_size", "image_channels", "channel_divisor"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"network.{name} = {getattr(self, name)}: it must be at least 1.")
        if min(self.stage_strides) < 1:
            raise InvalidInput(f"network.stage_strides = {list(self.stage_strides)}: strides must be at least 1.")
        if self.classes < 2:
            raise InvalidInput(f"network.classes = {self.classes}: a classifier needs at least 2 classes.")

    @property
    def num_stages(self) -> int:
        """The number of stages S."""
        return len(self.stage_channels)

    @property
    def largest(self) -> Architecture:
        """The full supernet."""
        return self.envelope((self.depths[-1],) * self.num_stages, (len(self.widths) - 1,) * (self.num_stages + 1))

    @property
    def smallest(self) -> Architecture:
        """The least network of the space."""
        stages = self.num_stages
        return Architecture((self.depths[0],) * stages, (self.expansions[0],) * stages, (0,) * (stages + 1))

    def envelope(self, depths: tuple[int, ...], width_indices: tuple[int, ...]) -> Architecture:
        """Return the architecture that holds every expansion at these depths and widths."""
        return Architecture(depths, (self.expansions[-1],) * self.num_stages, width_indices)

    def validate(self, architecture: Architecture) -> None:
        """Raise InvalidInput unless the architecture lies in this space."""
        stages = self.num_stages
        inside = (
            len(architecture.depths) == len(architecture.expansions) == stages
            and len(architecture.width_indices) == stages + 1
            and all(depth in self.depths for depth in architecture.depths)
            and all(expansion in self.expansions for expansion in architecture.expansions)
            and all(0 <= index < len(self.widths) for index in architecture.width_indices)
        )
        if not inside:
            raise InvalidInput(
                f"{architecture} is not in the network's space: it takes {stages} depths out of {list(self.depths)}, "
                f"{stages} expansions out of {list(self.expansions)} and {stages + 1} width indices "
                f"from 0 to {len(self.widths) - 1}."
            )

    def stem_width(self, architecture: Architecture) -> int:
        """Return the stem's output channels."""
        return self._scaled(self.stem_channels, architecture.width_indices[0])

    def stage_width(self, architecture: Architecture, stage: int) -> int:
        """Return a stage's output channels."""
        return self._scaled(self.stage_channels[stage], architecture.width_indices[stage + 1])

    def middle_width(self, architecture: Architecture, stage: int) -> int:
        """Return the channels between the two convolutions of a stage's blocks."""
        # Choice: rounded before the divisor rule, here and so in every cost (docs/decisions/003).
        middle = round(self.stage_width(architecture, stage) * architecture.expansions[stage])
        return round_channels(middle, self.channel_divisor)

    def feature_sizes(self) -> tuple[int, ...]:
        """Return the side of the feature maps after the stem and after each stage, in pixels."""
        sizes = [-(-self.image_size // self.stem_stride)]
        for stride in self.stage_strides:
            sizes.append(-(-sizes[-1] // stride))
        return tuple(sizes)

    def _scaled(self, channels: int, width_index: int) -> int:
        return round_channels(channels * self.widths[width_index], self.channel_divisor)
