"""The shipped builders nest, learn, and are found by name; so is a user's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Builder, BuiltNetwork, Member, check, elastic
from fedfeast.networks.normalisation import ByBatch, by_batch
from fedfeast.networks.shipped import BUILDERS, find_builder
from fedfeast.networks.shipped.adapters import with_adapters
from fedfeast.own_code import trust
from fedfeast.randomness import named_generator

TRANSFORMER = find_builder("nested_transformer").with_choices(depth=[1, 2], heads=[1, 2], hidden=[8, 16])
SMALL = TRANSFORMER.with_options(embedding=8)
CONV = find_builder("conv1d").with_choices(width=[4, 8], depth=[1, 2])
ADAPTERS = find_builder("adapters").with_options(embedding=8, heads=2, hidden=16)
TOKENS = torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("builder", "example", "notes"),
    [
        (SMALL, TOKENS, ["need no recalibration"]),
        (SMALL, torch.randn(3, 10, 10), ["need no recalibration"]),
        (SMALL.with_options(patch=3), torch.randn(2, 20), ["need no recalibration"]),
        (CONV, torch.randn(3, 33), ["recalibrated for serving"]),
        (CONV, torch.randn(1, 6, 20), ["recalibrated for serving"]),
        (ADAPTERS, TOKENS, ["need no recalibration"]),
        (ADAPTERS, torch.randn(1, 8, 8), ["need no recalibration"]),
    ],
    ids=["tokens", "patches", "sequence", "sensors", "sound", "adapted tokens", "adapted patches"],
)
def test_it_nests_without_a_complaint(builder: Builder, example: Tensor, notes: list[str]) -> None:
    report = check(builder, example, quiet=True)
    assert len(report.notes) == 1 + len(notes)
    assert all(one in note for one, note in zip(notes, report.notes[1:], strict=True))


def leaves(network: BuiltNetwork, member: Member) -> dict[str, Tensor]:
    views = network.layout.views(network.initial_weights(named_generator(0)), network.shapes(member))
    return {name: one.detach().requires_grad_() for name, one in views.items()}


def built(builder: Builder, shape: tuple[int, ...], vocabulary: int | None = None, classes: int = 3) -> BuiltNetwork:
    known: dict[str, object] = {"shape": shape, "classes": vocabulary or classes}
    if vocabulary is not None:
        known["vocabulary"] = vocabulary
    return BuiltNetwork(builder, known, shape, torch.float32 if vocabulary is None else torch.int64)


def test_the_next_token_depends_on_no_later_one() -> None:
    network = built(SMALL, (9,), 11)
    assert network.output_shape == (9, 11)
    weights, later = leaves(network, network.largest), TOKENS.clone()
    later[:, 5:] = 0
    first, second = (network.forward(weights, tokens, network.largest, by_batch)[0] for tokens in (TOKENS, later))
    torch.testing.assert_close(first[:, :5], second[:, :5])
    assert not torch.allclose(first[:, 5:], second[:, 5:])


def test_tokens_can_be_classified_too() -> None:
    known = {"shape": (9,), "classes": 2, "vocabulary": 11}
    network = BuiltNetwork(SMALL.with_options(pooled=True), known, (9,), torch.int64)
    assert network.output_shape == (2,)


def test_an_image_is_cut_into_squares_and_filled_up() -> None:
    network = built(SMALL, (3, 10, 10))
    assert network.layout.shapes["place"] == (9, 8)
    assert network.layout.shapes["embed.project.weight"] == (8, 3 * 4 * 4)
    inputs = torch.randn(2, 3, 10, 10)
    embed = network.skeleton(network.largest, torch.float32, torch.device("cpu")).module.get_submodule("embed")
    filled = nn.functional.pad(inputs, (0, 2, 0, 2))
    seen: list[Tensor] = []
    handle = embed.get_submodule("project").register_forward_hook(lambda _, received, __: seen.append(received[0]))
    network.forward(leaves(network, network.largest), inputs, network.largest, by_batch)
    handle.remove()
    assert torch.equal(seen[0][:, 1].view(2, 3, 4, 4), filled[:, :, :4, 4:8])


@pytest.mark.parametrize("member", list(CONV.members()), ids=repr)
def test_a_spectrogram_s_bands_are_channels(member: Member) -> None:
    sound, sensors = built(CONV, (1, 6, 20)), built(CONV, (6, 20))
    assert sound.layout.shapes == sensors.layout.shapes
    inputs, weights = torch.randn(3, 1, 6, 20), leaves(sound, member)
    (expected,) = sensors.forward(weights, inputs[:, 0], member, by_batch)
    assert torch.equal(sound.forward(weights, inputs, member, by_batch)[0], expected)


def test_options_reach_the_network() -> None:
    assert built(CONV.with_options(dropout=0.2), (6, 20)).draws
    network = built(SMALL.with_options(dropout=0.2), (9,), 11)
    weights = leaves(network, network.largest)
    dropped = network.forward(weights, TOKENS, network.largest, ByBatch(torch.tensor(1)))[0]
    assert not torch.allclose(dropped, network.forward(weights, TOKENS, network.largest, by_batch)[0])


def test_adapters_send_themselves_and_the_head_alone() -> None:
    network = built(ADAPTERS, (9,), 11)
    assert all(".up." in name or ".down." in name or name.startswith("head.") for name in network.layout.shapes)
    small, large = network.smallest, network.largest
    assert network.shapes(small)["blocks.0.up.down.weight"] == (2, 8)
    assert network.shapes(large)["blocks.0.up.up.weight"] == (16, 16)
    # Adapters start at nothing, so every rank is the body.
    outputs = [network.forward(leaves(network, one), TOKENS, one, by_batch)[0] for one in (small, large)]
    torch.testing.assert_close(*outputs)


def test_a_body_of_one_s_own_stays_as_it_is() -> None:
    body = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
    with torch.no_grad():
        body(torch.randn(20, 5))  # statistics of its own
    body.eval()
    builder = elastic(rank=[1, 2])(lambda rank: with_adapters(body, rank, learns=["3.*"]))
    network, inputs = BuiltNetwork(builder, {}, (5,)), torch.randn(6, 5)
    assert set(network.layout.shapes) == {"0.down.weight", "0.up.weight", "3.weight", "3.bias"}
    weights = leaves(network, network.largest)
    weights |= {name: body.get_parameter(name) for name in ("3.weight", "3.bias")}
    torch.testing.assert_close(network.forward(weights, inputs, network.largest, by_batch)[0], body(inputs))
    assert all(one.requires_grad and one.device.type == "cpu" for one in body.parameters())
    with pytest.raises(InvalidInput, match=r"no frozen nn\.Linear to adapt"):
        with_adapters(nn.Sequential(nn.Conv1d(1, 1, 1)), 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nested_tranformer", "did you mean 'nested_transformer'"),
        ("conv", "is unknown.*choose one of nested_transformer, conv1d, adapters"),
        ("nowhere.py:net", "nowhere.py, which is no Python file"),
    ],
)
def test_unknown_builders_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find_builder(name)


def test_a_builder_of_one_s_own_is_found_once_trusted(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import fedfeast\nfrom torch import nn\n\n\n@fedfeast.elastic(width=[2, 4])\n"
        "def net(width, *, classes):\n    return nn.Sequential(nn.Linear(5, width), nn.Linear(width, classes))\n"
    )
    with pytest.raises(InvalidInput, match="was not trusted on this machine before"):
        find_builder(f"{file}:net")
    trust(f"{file}:net")
    builder = find_builder(f"{file}:net")
    assert (builder.name, builder.asks) == ("net", ("classes",))
    assert BuiltNetwork(builder, {"classes": 3}, (5,)).parameters(builder.largest) == 24 + 15
    with pytest.raises(InvalidInput, match="has no builder nn: decorate the function"):
        find_builder(f"{file}:nn")


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_asks_for_nothing_unusual(name: str) -> None:
    known = {"classes": 3, "channels": 2, "length": 16, "shape": (2, 16)}
    network = BuiltNetwork(BUILDERS[name], known, (2, 16))
    assert network.output_shape == (3,)
    macs = [network.macs(one) for one in (network.smallest, network.largest)]
    assert macs == sorted(set(macs))
    assert np.isfinite(network.initial_weights(named_generator(0)).numpy()).all()
