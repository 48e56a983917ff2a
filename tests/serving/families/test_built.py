import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from own_networks import built_cnn
from torch import Tensor, nn

from fedfeast.data import Examples, Normalisation, normalise
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import recalibrate
from fedfeast.federation import Deployed
from fedfeast.networks import Layout
from fedfeast.networks.built import BuiltNetwork, Member, elastic
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.randomness import named_generator
from fedfeast.serving.families.built import BuiltFamily, BuiltModel

FAMILY = BuiltFamily()


def deployed_of(network: BuiltNetwork, member: Member) -> Deployed:
    """Return a member with weights that differ everywhere."""
    layout = Layout.of(network.shapes(member))
    flat = torch.from_numpy(named_generator(3).normal(size=layout.size)).float() / 3
    return Deployed(network, member, layout, flat, 1, 1)


def served(deployed: Deployed, inputs: Tensor, normalisation: Normalisation | None, kind: str) -> BuiltModel:
    statistics = recalibrate(deployed, Examples(inputs, torch.zeros(len(inputs))), normalisation)
    table = FAMILY.describe(deployed.network, deployed.architecture)
    dtype = torch.int64 if normalisation is None else inputs.dtype
    table |= FAMILY.describe_input(kind, tuple(inputs.shape[1:]), dtype, len(statistics))
    if normalisation is not None:
        table |= {"mean": list(normalisation.mean), "deviation": list(normalisation.deviation)}
    model = FAMILY.model(deployed, statistics, table)
    with torch.no_grad():
        expected = deployed(normalise(inputs, normalisation), ByStatistics(statistics))
        torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-5)
    return model


def test_a_served_cnn_is_the_evaluated_one_with_its_statistics_inside(tmp_path: Path) -> None:
    network = built_cnn(share=0.5)  # dropout, which serving leaves out
    images = (torch.arange(12 * 64) * 37 % 256).to(torch.uint8).reshape(12, 1, 8, 8)
    for member in (network.smallest, network.largest):
        deployed = deployed_of(network, member)
        model = served(deployed, images, Normalisation((0.4,), (0.3,)), "images")
        folder = tmp_path / str(member)
        folder.mkdir()
        assert FAMILY.write(folder, model) == ["model.pt2"]
        table = FAMILY.describe(network, member) | FAMILY.describe_input("images", (1, 8, 8), torch.uint8, 1)
        table |= {"mean": [0.4], "deviation": [0.3]}
        loaded = FAMILY.load(folder, table)
        for number in (1, 7):
            torch.testing.assert_close(loaded(images[:number]), model(images[:number]), rtol=1e-5, atol=1e-6)
        assert b"own_networks" not in (folder / "model.pt2").read_bytes()


def test_tensors_have_the_modules_names() -> None:
    network = built_cnn()
    statistics = {"norm": (torch.zeros(2), torch.ones(2))}
    tensors = FAMILY.tensors(deployed_of(network, network.smallest), statistics)
    module = network.builder.module(network.smallest, network.known)
    assert set(tensors) == {*dict(module.named_parameters()), "norm.running_mean", "norm.running_var"}
    assert all(one.is_contiguous() and one.dtype == torch.float32 for one in tensors.values())


class Text(nn.Module):
    """A tied output, a buffer and a frozen table."""

    def __init__(self, hidden: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(vocabulary, 4), nn.Linear(4, vocabulary, bias=False)
        self.out.weight = self.embedding.weight
        self.table, self.up, self.down = nn.Embedding(length, 4), nn.Linear(4, hidden), nn.Linear(hidden, 4)
        self.register_buffer("places", torch.arange(length), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.embedding(tokens) + self.table(self.places)
        return torch.as_tensor(self.out(features + self.down(F.gelu(self.up(features)))))


@elastic(hidden=[2, 5], frozen=["table.*"])
def text(hidden: int, *, vocabulary: int, length: int) -> nn.Module:
    return Text(hidden, vocabulary, length)


def test_the_next_token_comes_from_tied_frozen_and_constant_tensors(tmp_path: Path) -> None:
    network = BuiltNetwork(text, {"vocabulary": 7, "length": 6}, (6,), torch.int64)
    deployed = deployed_of(network, network.smallest)
    tokens = (torch.arange(30) * 5 % 7).to(torch.int16).reshape(5, 6)
    model = served(deployed, tokens, None, "tokens")
    assert model(tokens).shape == (5, 6, 7)
    FAMILY.write(tmp_path, model)
    table = FAMILY.describe(network, network.smallest) | FAMILY.describe_input("tokens", (6,), torch.int64)
    torch.testing.assert_close(FAMILY.load(tmp_path, table)(tokens), model(tokens), rtol=0, atol=1e-6)


class Numbers(nn.Module):
    """A norm that keeps no statistics of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(3, width, 3), nn.BatchNorm1d(width, affine=False, track_running_stats=False)
        self.head = nn.Linear(width, 2)

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.norm(self.first(numbers)).relu().mean(dim=2)))


@elastic(width=[2, 4])
def numbers(width: int) -> nn.Module:
    return Numbers(width)


def test_numbers_are_normalised_as_they_are_and_a_norm_without_statistics_gets_some() -> None:
    network = BuiltNetwork(numbers, {}, (3, 9))
    raw = (torch.arange(8 * 27) * 977 % 4001 - 2000).to(torch.int16).reshape(8, 3, 9)
    model = served(
        deployed_of(network, network.largest), raw, Normalisation((5.0, -40.0, 0.0), (900.0, 800.0, 1.5e3)), "numbers"
    )
    program = model.program().module()
    torch.testing.assert_close(program(raw[:3]), model(raw[:3]), rtol=1e-5, atol=1e-6)
    inner = model.program(takes_raw=False).module()
    torch.testing.assert_close(inner(model.normalise(raw)), model(raw), rtol=1e-5, atol=1e-6)
    timed = FAMILY.uncalibrated(deployed_of(network, network.smallest))
    assert timed(torch.zeros(1, 3, 9)).shape == (1, 2)


class Deciding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = self.first(numbers)
        return torch.as_tensor(hidden.sum(dim=1, keepdim=True) * (2 if float(hidden.max()) > 0 else 1))


@elastic(width=[2, 4])
def deciding(width: int) -> nn.Module:
    return Deciding(width)


def test_what_cannot_be_exported_is_said() -> None:
    network = BuiltNetwork(deciding, {}, (3,))
    model = FAMILY.uncalibrated(deployed_of(network, network.smallest))
    with pytest.raises(InvalidInput, match=r"torch.export cannot take the network's forward .*decisions by values"):
        model.program()


def test_one_module_handed_out_twice_is_not_changed() -> None:
    kept: dict[int, nn.Module] = {}

    @elastic(width=[2, 4])
    def same(width: int) -> nn.Module:
        return kept.setdefault(width, Numbers(width))

    network = BuiltNetwork(same, {}, (3, 9))
    before = copy.deepcopy(same(2).state_dict())
    FAMILY.uncalibrated(deployed_of(network, network.smallest))
    assert all(torch.equal(one, before[name]) for name, one in same(2).state_dict().items() if not one.is_meta)
