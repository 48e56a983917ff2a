"""Small networks for tokens and signals as a user writes them, and federations of three clients to train them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.data import Augmentation, Examples, Normalisation, Preparation, ShardedExamples
from fedfeast.data.tasks import task_named
from fedfeast.federation import Assignment, Client, Deployed, LocalSgd, Method
from fedfeast.methods import Feast, FedAvg
from fedfeast.methods.supernet.nested import Nested
from fedfeast.networks import Layout
from fedfeast.networks.built import Builder, BuiltNetwork, elastic
from fedfeast.population import Shards
from fedfeast.randomness import named_generator
from fedfeast.serving.families.built import BuiltFamily, BuiltModel
from fedfeast.variants import Variant, VariantCache

SIZES = (9, 6, 3)  # examples of the clients
BATCH = 3


class Block(nn.Module):
    """Causal attention and two layers behind it, each added to its input."""

    def __init__(self, heads: int, hidden: int, share: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 4 * heads) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(4 * heads, 8), nn.Linear(8, hidden), nn.Linear(hidden, 8)
        self.dropout = nn.Dropout(share)

    def forward(self, features: Tensor) -> Tensor:
        normal, shape = self.before(features), (*features.shape[:2], self.heads, 4)
        query, key, value = (one(normal).view(shape).transpose(1, 2) for one in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        features = features + self.dropout(self.out(mixed))
        hidden = F.gelu(self.up(self.between(features)))
        return torch.as_tensor(features + self.dropout(self.down(hidden)))


class CharModel(nn.Module):
    """Tied weights, a frozen body, positions of three axes, a scale without any, a table that does not learn."""

    def __init__(self, depth: int, heads: int, hidden: int, vocabulary: int, length: int, share: float) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(vocabulary, 8), nn.Linear(8, 8)
        self.position, self.scale = nn.Parameter(torch.zeros(1, length, 8)), nn.Parameter(torch.ones(()))
        self.blocks = nn.ModuleList(Block(heads, hidden, share) for _ in range(depth))
        self.head = nn.Linear(8, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(length).sin()[:, None], persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.body(self.embedding(tokens) + self.position) + self.table
        for block in self.blocks:
            features = block(features)
        return torch.as_tensor(self.head(features * self.scale))


@elastic(depth=[1, 2], heads=[1, 2], hidden=[8, 20], frozen=["body.*"])
def char_model(depth: int, heads: int, hidden: int, *, vocabulary: int, length: int, share: float = 0.2) -> nn.Module:
    return CharModel(depth, heads, hidden, vocabulary, length, share)


def small_char_model() -> BuiltModel:
    """Return the smallest of these networks as it is served, for six of seven symbols, with weights made up."""
    network = BuiltNetwork(char_model, {"vocabulary": 7, "length": 6}, (6,), torch.int64)
    layout = Layout.of(network.shapes(network.smallest))
    flat = torch.from_numpy(named_generator(3).normal(size=layout.size)).float() / 3
    return BuiltFamily().uncalibrated(Deployed(network, network.smallest, layout, flat, 1, 1))


class Signals(nn.Module):
    """Convolutions over time with batch norms, dropout of channels, and a gain of five axes."""

    def __init__(self, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(channels, width, 3, padding=1), nn.BatchNorm1d(width)
        self.second, self.after = nn.Conv1d(width, 8, 3, stride=2), nn.BatchNorm1d(8)
        self.gain = nn.Parameter(torch.full((1, width, 1, 1, 1), 1.5))
        self.dropout, self.head = nn.Dropout1d(0.25), nn.Linear(8, classes)

    def forward(self, signals: Tensor) -> Tensor:
        features = F.relu(self.norm(self.first(signals))) * self.gain.view(1, -1, 1)
        features = self.dropout(F.relu(self.after(self.second(features))))
        return torch.as_tensor(self.head(features.mean(dim=2)))


@elastic(width=[8, 12, 16])
def signals(width: int, *, channels: int, classes: int) -> nn.Module:
    return Signals(width, channels, classes)


class Flattening(nn.Module):
    """A convolutional network that views its features as a row, as tutorials do."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, width, 3, padding=1), nn.Conv2d(width, 4, 1)
        self.head = nn.Linear(4 * 3 * 3, classes)

    def forward(self, images: Tensor) -> Tensor:
        assert images.is_contiguous()
        features = F.max_pool2d(self.second(F.relu(self.first(images))), 2)
        return torch.as_tensor(self.head(features.view(len(features), -1)))


@elastic(width=[3, 8])
def flattening(width: int, *, classes: int) -> nn.Module:
    return Flattening(width, classes)


class Asking(nn.Module):
    """Asks its device for a number, which no captured graph can do."""

    def __init__(self, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(channels * 10, width), nn.Linear(width, classes)

    def forward(self, signals: Tensor) -> Tensor:
        hidden = self.up(signals.flatten(1)).relu()
        greatest = hidden.detach().abs().max().item() if hidden.device.type != "meta" else 1.0
        return torch.as_tensor(self.down(hidden / (1.0 + greatest)))


@elastic(width=[4, 8])
def asking(width: int, *, channels: int, classes: int) -> nn.Module:
    return Asking(width, channels, classes)


class Waiting(nn.Module):
    """Waits for its device, which torch notices only where that is forbidden."""

    def __init__(self, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(channels * 10, width), nn.Linear(width, classes)

    def forward(self, signals: Tensor) -> Tensor:
        hidden = self.up(signals.flatten(1)).relu()
        if hidden.is_cuda:
            torch.cuda.synchronize()
        return torch.as_tensor(self.down(hidden))


@elastic(width=[4, 8])
def waiting(width: int, *, channels: int, classes: int) -> nn.Module:
    return Waiting(width, channels, classes)


@dataclass(frozen=True, eq=False)
class SmallFederation:
    """What an engine is made of, and a round's plan."""

    method: Method
    examples: ShardedExamples
    preparation: Preparation
    sgd: LocalSgd
    seed: int
    device: torch.device

    @property
    def parts(self) -> tuple[Method, ShardedExamples, Preparation, LocalSgd, int]:
        """The first arguments of an engine."""
        return self.method, self.examples, self.preparation, self.sgd, self.seed

    def initial_weights(self, dtype: torch.dtype) -> Tensor:
        """Draw the global vector."""
        return self.method.network.initial_weights(named_generator(0, "weights")).to(self.device, dtype)

    def planned(self) -> list[Assignment]:
        """Return the parts of a rich, a middling and a poor client, as far as they take part."""
        points = self.method.operating_points()
        budgets = (1e12, points[len(points) // 2].macs, self.method.least_macs)
        clients = [Client(index, f"client {index}", float(one), SIZES[index]) for index, one in enumerate(budgets)]
        cohort = [client for client in clients if self.method.trains(client.budget_macs)]
        flat = self.method.network.layout.zeros(torch.float32)
        return self.method.plan_round(self.method.initial_state(), flat, cohort, 0, named_generator(0))[0]


def token_federation(method: str = "feast", device: str | torch.device = "cpu", **options: Any) -> SmallFederation:
    """Return clients that learn the next of eleven symbols, some positions of which count nowhere."""
    drawn = torch.from_numpy(named_generator(0, "tokens").integers(0, 11, (sum(SIZES), 7)))
    labels = drawn[:, 1:].clone()
    labels[::4, 4:] = -1
    builder = char_model.with_options(**options) if options else char_model
    network = BuiltNetwork(builder, {"vocabulary": 11, "length": 6}, (6,), torch.int64)
    return _federation(network, method, Examples(drawn[:, :6].to(torch.uint8), labels), None, "next-token", device)


def signal_federation(
    method: str = "feast",
    device: str | torch.device = "cpu",
    builder: Builder = signals,
    shape: tuple[int, ...] = (2, 10),
    task: str = "classification",
) -> SmallFederation:
    """Return clients that tell signals of two channels apart, or give them three numbers."""
    generator, count = named_generator(0, "signals"), sum(SIZES)
    inputs = torch.from_numpy(generator.normal(size=(count, *shape))).float()
    labels = {
        "classification": torch.from_numpy(generator.integers(0, 3, count)),
        "multi-label": torch.from_numpy(generator.integers(0, 2, (count, 3)).astype("uint8")),
        "regression": torch.from_numpy(generator.normal(size=(count, 3))).float(),
    }[task]
    network = BuiltNetwork(builder, {"channels": shape[0], "classes": 3}, shape)
    normalisation = Normalisation((0.1,) * shape[0], (0.9,) * shape[0])
    return _federation(network, method, Examples(inputs, labels), normalisation, task, device)


def _federation(
    network: BuiltNetwork,
    method: str,
    pool: Examples,
    normalisation: Normalisation | None,
    task: str,
    device: str | torch.device,
) -> SmallFederation:
    cache = VariantCache.of([Variant.of(network, one) for one in network.builder.members()])
    methods: dict[str, Method] = {
        "feast": Feast(network, cache),
        "nested": Nested(network, cache, distillation=True),
        "fedavg": FedAvg(network, cache, max_macs=float(cache[len(cache) // 2].macs)),
    }
    preparation = Preparation(BATCH, 2, Augmentation(), None, normalisation, task_named(task), draws=network.draws)
    shards = Shards(np.arange(sum(SIZES)), np.cumsum((0, *SIZES)))
    examples = ShardedExamples(pool.to(torch.device(device)), shards)
    return SmallFederation(methods[method], examples, preparation, LocalSgd(5e-3, 1.0), 0, torch.device(device))
