import torch

from fedfeast.networks import Architecture, ElasticResNet, Layout, SearchSpace
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.routing import MaskedPositions, SliceMap, envelope_of
from fedfeast.variants import Variant

SOURCE = Layout.of({"conv": (3, 2, 1, 2), "bias": (4,)}, alignment=8)
SLICES = SliceMap.leading(SOURCE, {"conv": (2, 1, 1, 2), "bias": (3,)})


def test_index_is_the_sorted_list_of_routed_positions() -> None:
    # conv[o, i, 0, x] lies at 4 o + 2 x + i; bias begins at 16.
    index = SLICES.index()
    assert index.dtype == torch.int32
    assert index.tolist() == [0, 2, 4, 6, 16, 17, 18]
    assert SLICES.payload == 7


def test_gather_scatter_and_add_agree_with_the_index() -> None:
    index = SLICES.index().long()
    flat = torch.arange(SOURCE.size, dtype=torch.float32)
    compact = SLICES.gather(flat)
    assert torch.equal(compact, flat[index])
    written = torch.full_like(flat, -1.0)
    SLICES.scatter_(written, compact)
    assert torch.equal(written[index], compact)
    assert (written == -1).sum() == SOURCE.size - 7
    sums = torch.zeros(SOURCE.size, dtype=torch.float64)
    SLICES.add_(sums, compact, 3.0)
    SLICES.increment_(sums, 1.0)
    assert torch.equal(sums[index], 3 * compact.double() + 1)
    assert torch.count_nonzero(sums) == 7


def test_a_network_built_from_the_compact_slice_gives_the_same_logits() -> None:
    network = ElasticResNet(SearchSpace())
    flat = network.initial_weights(named_generator(0, "weights"))
    architectures = [
        Architecture((3, 7, 6, 7), (0.22, 0.1, 0.1, 0.1), (2, 0, 0, 0, 0)),
        Architecture((7, 8, 8, 7), (0.1, 0.1, 0.1, 0.1), (1, 0, 0, 0, 0)),
        Architecture((8, 8, 8, 8), (0.1, 0.1, 0.18, 0.1), (1, 0, 0, 0, 1)),
    ]
    envelope = envelope_of([Variant.of(network, one) for one in architectures], network.space)
    slices = SliceMap.leading(network.layout, network.shapes(envelope))
    compact = slices.gather(flat)
    assert compact.numel() == network.parameters(envelope) == 2_020_140
    images = torch.from_numpy(named_generator(0, "images").normal(size=(2, 3, 32, 32))).float()
    for architecture in architectures:
        shapes = network.shapes(architecture)
        routed = network.forward(slices.layout.views(compact, shapes), images, architecture, by_batch)
        whole = network.forward(network.layout.views(flat, shapes), images, architecture, by_batch)
        assert torch.equal(routed[0], whole[0])


def test_what_is_packed_is_unpacked() -> None:
    layout = Layout.of({"w": (2, 3)}, alignment=4)
    masked = MaskedPositions.of(layout, torch.tensor([True, False, True, True, False, False]))
    local = masked.gather(torch.arange(1.0, 7.0))
    assert masked.pack(local).tolist() == [1.0, 3.0, 4.0]
    assert torch.equal(masked.unpack(masked.pack(local)), local)
    leading = SliceMap.leading(layout, {"w": (1, 2)})
    assert torch.equal(leading.unpack(leading.pack(local[:2])), local[:2])
