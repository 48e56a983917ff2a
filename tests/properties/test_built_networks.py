"""Families of random sizes: members are leading slices, envelopes hold them, and gradients reach their slices alone."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfeast.networks.built import BuiltNetwork, Member, check, elastic
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

modest = settings(derandomize=True, deadline=None, max_examples=12)


class Residual(nn.Module):
    """Blocks of a width of their own on a stream whose width changes too."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, width), nn.Linear(width, 2)
        self.up = nn.ModuleList(nn.Linear(width, hidden) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(depth))

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.stem(inputs)
        for up, down in zip(self.up, self.down, strict=True):
            features = features + down(F.gelu(up(features)))
        logits: Tensor = self.head(features)
        return logits


rising = st.lists(st.integers(1, 9), min_size=2, max_size=3, unique=True).map(sorted)


@st.composite
def families(draw: st.DrawFn) -> tuple[BuiltNetwork, list[Member]]:
    builder = elastic(width=draw(rising), hidden=draw(rising), depth=[1, 2])(
        lambda width, hidden, depth: Residual(width, hidden, depth)
    )
    network = BuiltNetwork(builder, {}, (3,))
    return network, draw(st.lists(st.sampled_from(list(builder.members())), min_size=1, max_size=3))


@modest
@given(families())
def test_an_envelope_holds_its_members_and_gradients_stay_inside(family: tuple[BuiltNetwork, list[Member]]) -> None:
    network, members = family
    envelope = LeadingSlices.of(network.layout, network.shapes(network.envelope(members)))
    held = set(envelope.index().tolist())
    flat = network.initial_weights(named_generator(0)).double()
    for member in members:
        slices = LeadingSlices.of(network.layout, network.shapes(member))
        assert set(slices.index().tolist()) <= held
        whole = flat.clone().requires_grad_()
        (outputs,) = network.forward(
            network.layout.views(whole, network.shapes(member)), torch.ones(2, 3, dtype=torch.float64), member, by_batch
        )
        (gradient,) = torch.autograd.grad(outputs.sum(), whole)
        assert set(gradient.nonzero().flatten().tolist()) <= set(slices.index().tolist())


@modest
@given(families())
def test_a_family_that_nests_passes_the_trial(family: tuple[BuiltNetwork, list[Member]]) -> None:
    network, _ = family
    report = check(network.builder, torch.ones(4, 3), {"shape": (3,)}, quiet=True)
    assert not [note for note in report.notes if "residual path" in note or "normalises" in note]
    assert report.greatest_macs == network.macs(network.largest)
