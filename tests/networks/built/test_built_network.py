"""A built network against plain PyTorch: the same outputs and gradients, through views of one flat vector."""

from math import prod

import pytest
import torch
from own_networks import built_cnn, cnn
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import BuiltNetwork, Member, elastic
from fedfeast.networks.built.construction import FIXED_SEED, construct
from fedfeast.networks.normalisation import ByBatch, ByStatistics, RecordingByBatch, by_batch
from fedfeast.randomness import named_generator


def leaves(network: BuiltNetwork, member: Member, flat: Tensor) -> dict[str, Tensor]:
    return {
        name: view.detach().requires_grad_()
        for name, view in network.layout.views(flat, network.shapes(member)).items()
    }


def plain(network: BuiltNetwork, member: Member, weights: dict[str, Tensor]) -> nn.Module:
    module = construct(network.builder, member, network.known, FIXED_SEED).double()
    module.load_state_dict({name: one.detach() for name, one in weights.items()}, strict=False)
    return module


@pytest.mark.parametrize("member", list(cnn.members()), ids=repr)
def test_a_member_is_the_plain_module_with_its_slices(member: Member) -> None:
    network = built_cnn()
    weights = leaves(network, member, network.initial_weights(named_generator(0)).double())
    module, inputs = plain(network, member, weights), torch.randn(5, 1, 8, 8, dtype=torch.float64)
    expected = module(inputs)
    (outputs,) = network.forward(weights, inputs, member, by_batch)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    ours = torch.autograd.grad(outputs.square().sum(), list(weights.values()))
    theirs = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    for name, one, other in zip(weights, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=name)


def test_costs_are_those_of_the_member_alone() -> None:
    network = built_cnn()
    small = network.smallest
    assert repr(small) == "width=2 hidden=3 depth=1"
    assert network.parameters(small) == sum(map(prod, network.shapes(small).values())) == 18 + 2 + 4 + 9 + 8 + 9
    assert network.macs(small) == 64 * (9 * 2 + 2 * 2 * 3) + 2 * 3
    assert network.convolution_macs(small) == network.macs(small), "what training costs counts everything"
    assert network.output_shape == (3,)
    assert network.largest == network.envelope([network.member(width=2), network.member(hidden=3, depth=1)])


def test_initial_weights_are_the_constructor_s_and_touch_no_other_draw() -> None:
    network = built_cnn()
    before = torch.random.get_rng_state()
    flat = network.initial_weights(named_generator(1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(flat, network.initial_weights(named_generator(1)))
    assert not torch.equal(flat, network.initial_weights(named_generator(2)))
    views = network.layout.views(flat)
    assert torch.equal(views["norm.weight"], torch.ones(4))
    assert 0 < float(views["stem.weight"].abs().max()) <= 1 / 3


@torch.no_grad()
def test_batch_norms_follow_the_pass_under_their_own_names() -> None:
    network, inputs = built_cnn(), torch.randn(6, 1, 8, 8)
    weights = leaves(network, network.smallest, network.initial_weights(named_generator(0)))
    recording = RecordingByBatch()
    (expected,) = network.forward(weights, inputs, network.smallest, recording)
    statistics = recording.statistics(torch.float32)
    assert list(statistics) == ["norm"]
    (served,) = network.forward(weights, inputs, network.smallest, ByStatistics(statistics))
    torch.testing.assert_close(served, expected)


def test_dropout_is_a_function_of_the_draw() -> None:
    network, inputs = built_cnn(share=0.5), torch.randn(6, 1, 8, 8)
    assert network.draws
    assert not built_cnn().draws
    weights = leaves(network, network.largest, network.initial_weights(named_generator(0)))

    def outputs(draw: int | None) -> Tensor:
        layers = ByBatch(None if draw is None else torch.tensor(draw))
        return network.forward(weights, inputs, network.largest, layers)[0]

    assert torch.equal(outputs(3), outputs(3))
    assert not torch.equal(outputs(3), outputs(4))
    assert torch.equal(outputs(None), built_cnn().forward(weights, inputs, network.largest, by_batch)[0])


class Twice(nn.Module):
    """One dropout at two places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.dropout = nn.Parameter(torch.ones(width)), nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        ones = torch.ones_like(inputs) * self.scale.mean()
        return torch.stack([self.dropout(ones), self.dropout(ones)], dim=1)


def test_a_dropout_that_is_used_twice_draws_twice() -> None:
    network = BuiltNetwork(elastic(width=[2, 4])(lambda width: Twice(width)), {}, (100,))
    weights = {"scale": torch.ones(4)}
    skeleton = network.skeleton(network.largest, torch.float32, torch.device("cpu"))
    first, again = (skeleton(weights, torch.ones(2, 100), ByBatch(torch.tensor(7))) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first[:, 0], first[:, 1])


class Tied(nn.Module):
    """Shared weights, a table that does not learn, a scale without axes, a frozen body, three axes."""

    def __init__(self, width: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(vocabulary, 6), nn.Linear(6, 6)
        self.up, self.down = nn.Linear(6, width), nn.Linear(width, 6)
        self.position = nn.Parameter(torch.zeros(1, length, 6))
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(6, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(length * width).view(length, width) / 10)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.body(self.embedding(tokens) + self.position)
        hidden = self.up(features).relu() + self.table
        logits: Tensor = self.head(features + self.scale * self.down(hidden))
        return logits


@elastic(width=[2, 5], frozen=["body.*"])
def tied(width: int, *, vocabulary: int, length: int) -> nn.Module:
    return Tied(width, vocabulary, length)


def test_tied_frozen_and_buffered_tensors_of_any_rank() -> None:
    network = BuiltNetwork(tied, {"vocabulary": 7, "length": 4}, (4,), torch.int64)
    assert set(network.layout.shapes) == {
        *("embedding.weight", "position", "scale", "up.weight", "up.bias", "down.weight", "down.bias")
    }
    assert network.layout.shapes["scale"] == ()
    flat, tokens = network.initial_weights(named_generator(0)).double(), torch.randint(0, 7, (3, 4))
    bodies = []
    for member in tied.members():
        weights = leaves(network, member, flat)
        module = plain(network, member, weights)
        bodies.append(module.get_parameter("body.weight"))
        (outputs,) = network.forward(weights, tokens, member, by_batch)
        largest = construct(tied, network.largest, network.known, FIXED_SEED)
        module.get_submodule("body").load_state_dict(largest.get_submodule("body").state_dict())
        torch.testing.assert_close(outputs, module(tokens), rtol=0, atol=1e-12)
        gradient = torch.autograd.grad(outputs.sum(), weights["embedding.weight"])[0]
        expected = torch.autograd.grad(module(tokens).sum(), module.get_parameter("embedding.weight"))[0]
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_a_cache_s_columns_are_the_choices() -> None:
    network = built_cnn()
    member = network.member(width=2)
    assert network.columns(member) == {"width": "2", "hidden": "6", "depth": "2"}
    assert network.read_columns({**network.columns(member), "macs": "1"}) == member
    with pytest.raises(ValueError, match="3' is none of 2, 4"):
        network.read_columns({"width": "3", "hidden": "6", "depth": "2"})
    with pytest.raises(InvalidInput, match=r"width=3 .* is no member of cnn"):
        network.macs(Member.of({"width": 3, "hidden": 6, "depth": 2}))


def test_equal_networks_are_equal() -> None:
    assert built_cnn() == built_cnn()
    assert hash(built_cnn()) == hash(built_cnn())
    assert built_cnn() != built_cnn(classes=4)


def test_sizes_that_change_after_the_network_was_examined_are_refused() -> None:
    extra = [0]
    builder = elastic(width=[2, 4])(lambda width: nn.Linear(3, 3 * width + extra[0]))
    network = BuiltNetwork(builder, {}, (3,))
    assert [network.parameters(one) for one in (network.smallest, network.largest)] == [24, 48]
    extra[0] = 1
    with pytest.raises(
        InvalidInput, match=r"is not deterministic: called twice for width=4, parameter weight is \(12, 3\)"
    ):
        network.initial_weights(named_generator(0))
    with pytest.raises(InvalidInput, match=r"called twice for width=2, parameter weight is \(6, 3\) and then \(7, 3\)"):
        network.skeleton(network.smallest, torch.float32, torch.device("cpu"))
