"""Batch norms and dropout inside a module that leave their work to the pass's layers."""

from collections import Counter
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.layers import Layers
from fedfeast.networks.normalisation import by_batch

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
CHANNEL_DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
OTHER_DROPOUTS = (nn.AlphaDropout, nn.FeatureAlphaDropout)

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


@dataclass(eq=False)
class CurrentPass:
    """The layers of the pass that runs through a module."""

    layers: Layers = by_batch
    uses: Counter[str] = field(default_factory=Counter)  # of every dropout so far

    def begin(self, layers: Layers) -> None:
        """Start a pass."""
        self.layers = layers
        self.uses.clear()

    def use(self, name: str) -> str:
        """Return what one more use of a dropout is called: a module that is used twice draws twice."""
        self.uses[name] += 1
        return name if self.uses[name] == 1 else f"{name}, use {self.uses[name]}"


class PassNorm(nn.Module):
    """A batch norm by the statistics that the pass's layers choose; parameters keep their names."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, name: str, norm: BatchNorm, current: CurrentPass) -> None:
        super().__init__()
        self.name, self.epsilon, self._current = name, norm.eps, current
        self.register_parameter("weight", norm.weight if norm.affine else None)
        self.register_parameter("bias", norm.bias if norm.affine else None)

    def forward(self, features: Tensor) -> Tensor:
        """Normalise (batch, channels, ...)."""
        return self._current.layers(self.name, features, self.weight, self.bias, self.epsilon)


class FrozenNorm(nn.Module):
    """A batch norm of a frozen body: by the statistics it came with, in training too."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(self, norm: BatchNorm) -> None:
        super().__init__()
        self.epsilon = norm.eps
        self.register_parameter("weight", norm.weight)
        self.register_parameter("bias", norm.bias)
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, features: Tensor) -> Tensor:
        """Normalise (batch, channels, ...)."""
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(features, mean, variance, self.weight, self.bias, training=False, eps=self.epsilon)


class PassDropout(nn.Module):
    """Dropout of positions, or of whole channels, by the pass's own draw."""

    def __init__(self, name: str, share: float, of_channels: bool, current: CurrentPass) -> None:
        super().__init__()
        self.name, self.share, self.of_channels, self._current = name, share, of_channels, current

    def forward(self, features: Tensor) -> Tensor:
        """Drop a share of (batch, channels, ...)."""
        layers, name = self._current.layers, self._current.use(self.name)
        if not self.of_channels:
            return layers.dropout(name, features, self.share)
        ones = features.new_ones((*features.shape[:2], *(1 for _ in features.shape[2:])))
        return features * layers.dropout(name, ones, self.share)


def with_pass_layers(module: nn.Module, current: CurrentPass, frozen: frozenset[str] = frozenset()) -> nn.Module:
    """Return the module, its batch norms and dropouts replaced in place; frozen names parameters."""
    replaced: dict[int, nn.Module] = {}

    def replacement(name: str, one: nn.Module) -> nn.Module:
        if isinstance(one, OTHER_DROPOUTS):
            raise InvalidInput(
                f"module {name} is nn.{type(one).__name__}, which draws from no named generator: use nn.Dropout."
            )
        if isinstance(one, BATCH_NORMS):
            has_own = one.running_mean is not None and f"{name}.weight" in frozen
            return FrozenNorm(one) if has_own else PassNorm(name, one, current)
        if isinstance(one, (nn.Dropout, *CHANNEL_DROPOUTS)):
            return PassDropout(name, one.p, isinstance(one, CHANNEL_DROPOUTS), current)
        return one

    def replace_children(name: str, one: nn.Module) -> None:
        for key, child in list(one.named_children()):
            path = f"{name}.{key}" if name else key
            if id(child) not in replaced:
                replaced[id(child)] = new = replacement(path, child)
                if new is child:
                    replace_children(path, child)
            one._modules[key] = replaced[id(child)]

    whole = replacement("", module)
    if whole is module:
        replace_children("", module)
    return whole
