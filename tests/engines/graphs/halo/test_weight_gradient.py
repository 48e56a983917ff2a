"""Gradients by weights in CUDA C++ against plain ones: in emulation, or on a GPU where there is one."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.engines.graphs.halo.tiles import WeightTiles, weight_tiles
from fedfeast.engines.graphs.halo.weight_gradient import MOST_LAYERS, Layer, weight_gradients
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WHOLE = 1e-4  # sums stay float32

pytestmark = pytest.mark.usefixtures("emulated_kernels")


@dataclass(frozen=True)
class Case:
    batch: int
    side: int
    wide: int
    narrow: int

    @property
    def tiles(self) -> WeightTiles:
        tiles = weight_tiles(self.side, self.batch, self.wide, self.narrow)
        assert tiles is not None
        return tiles

    def layer(self, place: int, narrow_is_input: bool) -> Layer:
        """Return a layer of its own, with room of which every number has to be written."""
        channels = (self.narrow, self.wide) if narrow_is_input else (self.wide, self.narrow)
        features, gradient = (
            drawn(f"{name} {place}", (self.batch, count, self.side, self.side))
            for name, count in zip(("features", "gradient"), channels, strict=True)
        )
        size = self.tiles.parts * 9 * self.wide * self.narrow
        return Layer(features, gradient, torch.full((size,), torch.nan, device=DEVICE))


def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape))
    return values.to(DEVICE, torch.bfloat16).contiguous(memory_format=torch.channels_last)


def check(layer: Layer, parts: int, rows: int | None = None) -> None:
    incoming, outgoing = layer.features.shape[1], layer.gradient.shape[1]
    layer = replace(layer, features=layer.features[:rows], gradient=layer.gradient[:rows])
    weight = torch.zeros(outgoing, incoming, 3, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    out = F.conv2d(layer.features.double(), weight, padding=1)
    (expected,) = torch.autograd.grad(out, weight, layer.gradient.double())
    got = layer.out.view(parts, outgoing, 3, 3, incoming).sum(0).permute(0, 3, 1, 2).double()
    torch.testing.assert_close(got, expected, rtol=WHOLE, atol=WHOLE * float(expected.abs().max()))


@pytest.mark.parametrize(
    "case",
    [Case(9, 4, 104, 24), Case(3, 8, 72, 40), Case(3, 16, 56, 24), Case(2, 32, 80, 8), Case(1, 64, 16, 16)],
    ids=str,
)
def test_layers_of_both_kinds_in_one_launch(case: Case) -> None:
    layers = [case.layer(place, narrow_is_input) for place, narrow_is_input in enumerate((True, False, True))]
    weight_gradients(layers, case.tiles)
    for layer in layers:
        check(layer, case.tiles.parts)


@pytest.mark.parametrize(("case", "rows"), [(Case(9, 4, 104, 24), 3), (Case(2, 32, 80, 8), 1)], ids=str)
def test_a_launch_serves_fewer_images(case: Case, rows: int) -> None:
    layers = [case.layer(place, narrow_is_input) for place, narrow_is_input in enumerate((True, False))]
    for layer in layers:
        layer.features[rows:] = layer.gradient[rows:] = torch.nan
    weight_gradients(layers, case.tiles, torch.tensor([rows], dtype=torch.int32, device=DEVICE))
    for layer in layers:
        check(layer, case.tiles.parts, rows)  # parts without images are zero


def test_the_same_bits_every_time_and_in_any_company() -> None:
    case = Case(2, 32, 80, 8)
    assert case.tiles.parts > 1
    layers = [case.layer(place, place % 3 == 0) for place in range(MOST_LAYERS)]
    weight_gradients(layers, case.tiles)
    for place in (0, 5, MOST_LAYERS - 1):
        alone = case.layer(place, place % 3 == 0)
        weight_gradients([alone], case.tiles)
        assert torch.equal(alone.out, layers[place].out)
        check(alone, case.tiles.parts)


def test_a_layer_knows_which_tensor_is_narrow() -> None:
    case = Case(1, 4, 16, 8)
    widening, narrowing = case.layer(0, True), case.layer(0, False)
    assert widening.size == narrowing.size == (16, 8)
    assert widening.wide_and_narrow == (widening.gradient, widening.features)
    assert narrowing.wide_and_narrow == (narrowing.features, narrowing.gradient)
    assert not Case(1, 4, 8, 8).layer(0, False).narrow_is_input
