from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfeast.networks import Architecture, ElasticResNet, Layout, SearchSpace
from fedfeast.networks.layout import Shapes
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions, SliceMap, envelope_of
from fedfeast.variants import Variant

SOURCE = Layout.of({"conv": (3, 2, 1, 2), "bias": (4,)}, alignment=8)
SLICES = LeadingSlices.of(SOURCE, {"conv": (2, 1, 1, 2), "bias": (3,)})


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
    envelope = envelope_of([Variant.of(network, one) for one in architectures], network)
    slices = LeadingSlices.of(network.layout, network.shapes(envelope))
    compact = slices.gather(flat)
    assert compact.numel() == network.parameters(envelope) == 2_020_140
    images = torch.from_numpy(named_generator(0, "images").normal(size=(2, 3, 32, 32))).float()
    for architecture in architectures:
        shapes = network.shapes(architecture)
        routed = network.forward(slices.layout.views(compact, shapes), images, architecture, by_batch)
        whole = network.forward(network.layout.views(flat, shapes), images, architecture, by_batch)
        assert torch.equal(routed[0], whole[0])


sizes = st.integers(1, 4)
tensor_shapes = st.one_of(st.tuples(sizes, sizes, st.integers(1, 2), st.integers(1, 2)), st.tuples(sizes, sizes))
layouts = st.builds(
    lambda shapes, vector, alignment: Layout.of(
        {**{f"tensor{number}": shape for number, shape in enumerate(shapes)}, "vector": vector}, alignment
    ),
    st.lists(tensor_shapes, min_size=1, max_size=3),
    st.tuples(sizes),
    st.sampled_from([1, 4]),
)
Axes = dict[str, tuple[list[int], ...]]
modest = settings(derandomize=True, deadline=None, max_examples=60)


def indices(size: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, size - 1), min_size=1).map(sorted)


def choices(layout: Layout) -> st.SearchStrategy[tuple[Layout, Axes]]:
    """Index sets along the first two axes of every tensor of a layout, in its order."""
    axes = [st.tuples(*map(indices, shape[:2])) for shape in layout.shapes.values()]
    return st.tuples(*axes).map(lambda drawn: (layout, dict(zip(layout.shapes, drawn, strict=True))))


def loop_over_places(layout: Layout, chosen: Axes) -> list[int]:
    """Where the chosen scalars lie, one by one: a convolution is stored as (out, height, width, in)."""
    positions = []
    for name, axes in chosen.items():
        shape, start = layout.shapes[name], layout.offsets[name]
        incoming = shape[1] if len(shape) > 1 else 1
        height, width = shape[2:] if len(shape) == 4 else (1, 1)
        columns = axes[1] if len(axes) > 1 else [0]
        for row, y, x, column in product(axes[0], range(height), range(width), columns):
            positions.append(start + ((row * height + y) * width + x) * incoming + column)
    return positions


def check_against_positions(slices: SliceMap, positions: list[int]) -> None:
    """Check every verb of a slice map against the list of its positions and a loop over it."""
    size = slices.source.size
    assert slices.index().dtype == torch.int32
    assert slices.index().tolist() == positions == sorted(positions)
    assert slices.payload == len(positions)
    flat = torch.arange(1.0, size + 1)
    local = slices.gather(flat)
    assert local.numel() == slices.layout.size
    assert slices.pack(local).tolist() == [flat[position].item() for position in positions]
    untouched = [position for position in range(size) if position not in positions]

    written = torch.full((size,), -1.0)
    slices.scatter_(written, 2 * local)
    assert written[positions].tolist() == [2 * flat[position].item() for position in positions]
    assert (written[untouched] == -1).all()

    sums = torch.ones(size, dtype=torch.float64)
    slices.add_(sums, local, 0.1)
    slices.increment_(sums, 0.3)
    slices.increment_(sums, 2.0)
    expected = [1 + 0.1 * flat[position].item() + 0.3 + 2.0 for position in positions]
    assert sums[positions].tolist() == pytest.approx(expected, rel=1e-14), "in float64, whatever the client computes in"
    assert (sums[untouched] == 1).all()
    assert flat.tolist() == list(range(1, size + 1)), "reading changes nothing"


@modest
@given(layouts.flatmap(choices))
def test_chosen_slices_against_a_loop_over_places(drawn: tuple[Layout, Axes]) -> None:
    source, chosen = drawn
    slices = ChosenSlices.of(source, {name: tuple(map(torch.tensor, axes)) for name, axes in chosen.items()})
    assert not slices.is_leading
    for name, axes in chosen.items():
        assert slices.layout.shapes[name] == (*map(len, axes), *source.shapes[name][len(axes) :])
    check_against_positions(slices, loop_over_places(source, chosen))


@modest
@given(layouts.flatmap(choices))
def test_leading_choices_are_leading_slices(drawn: tuple[Layout, Axes]) -> None:
    source, chosen = drawn
    leading = {name: tuple(torch.arange(len(axis)) for axis in axes) for name, axes in chosen.items()}
    slices = ChosenSlices.of(source, leading)
    shapes: Shapes = slices.layout.shapes
    flat = torch.arange(float(source.size))
    assert torch.equal(slices.gather(flat), LeadingSlices.of(source, shapes).gather(flat))
    assert torch.equal(slices.index(), LeadingSlices.of(source, shapes).index())


def test_a_chosen_convolution_keeps_rows_and_columns_together() -> None:
    source = Layout.of({"conv": (3, 4, 1, 2)})
    slices = ChosenSlices.of(source, {"conv": (torch.tensor([0, 2]), torch.tensor([1, 3]))})
    flat = torch.arange(24.0)
    whole, own = source.views(flat)["conv"], slices.layout.views(slices.gather(flat))["conv"]
    assert own.shape == (2, 2, 1, 2)
    for row, column in product(range(2), repeat=2):
        assert own[row, column].tolist() == whole[(0, 2)[row], (1, 3)[column]].tolist()


@modest
@given(
    layouts.flatmap(lambda one: st.tuples(st.just(one), st.lists(st.booleans(), min_size=one.size, max_size=one.size)))
)
def test_masked_positions_against_a_loop(drawn: tuple[Layout, list[bool]]) -> None:
    source, mask = drawn
    slices = MaskedPositions.of(source, torch.tensor(mask))
    positions = [position for position, sent in enumerate(mask) if sent]
    assert not slices.is_leading
    check_against_positions(slices, positions)
    local = slices.gather(torch.ones(source.size))
    assert local.tolist() == [float(sent) for sent in mask], "a vector of the global layout, zero elsewhere"


def test_what_was_not_sent_is_not_added_whatever_the_client_holds_there() -> None:
    source = Layout.of({"vector": (3,)})
    slices = MaskedPositions.of(source, torch.tensor([True, False, True]))
    held = torch.tensor([1.0, float("nan"), 3.0])
    sums, written = torch.zeros(3, dtype=torch.float64), torch.tensor([7.0, 8.0, 9.0])
    slices.add_(sums, held, 2.0)
    slices.scatter_(written, held)
    assert sums.tolist() == [2.0, 0.0, 6.0]
    assert written.tolist() == [1.0, 8.0, 3.0]
    assert slices.pack(held).tolist() == [1.0, 3.0]


def test_what_is_packed_is_unpacked() -> None:
    layout = Layout.of({"w": (2, 3)}, alignment=4)
    masked = MaskedPositions.of(layout, torch.tensor([True, False, True, True, False, False]))
    local = masked.gather(torch.arange(1.0, 7.0))
    assert masked.pack(local).tolist() == [1.0, 3.0, 4.0]
    assert torch.equal(masked.unpack(masked.pack(local)), local)
    leading = LeadingSlices.of(layout, {"w": (1, 2)})
    assert torch.equal(leading.unpack(leading.pack(local[:2])), local[:2])
