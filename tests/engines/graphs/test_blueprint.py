import pytest
import torch
from tiny import NETWORK, TORN_SPACE

from fedfeast.engines.graphs.blueprint import (
    CHUNK,
    PARTS_TO_SIZE,
    active_positions,
    chunk_of,
    joined_ranges,
    make_blueprint,
    parts_at_once,
    passive_positions,
    tensor_ranges,
)
from fedfeast.engines.graphs.gradient_plan import plan_gradients, plan_whole_gradients
from fedfeast.networks import Architecture, ElasticResNet, Layout
from fedfeast.routing import LeadingSlices, SliceMap

CPU = torch.device("cpu")


WHOLE, TORN = NETWORK, ElasticResNet(TORN_SPACE)
ARCHITECTURES = [WHOLE.space.smallest, WHOLE.space.largest, Architecture((1, 0), (0.25, 0.5), (1, 0, 1))]
# Where chunks fit, they can be used; single positions always can.
cases = pytest.mark.parametrize(("one", "chunk"), [(WHOLE, CHUNK), (WHOLE, 1), (TORN, 1)])
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def positions_of(chunks: torch.Tensor, chunk: int) -> torch.Tensor:
    return (chunks.long()[:, None] * chunk + torch.arange(chunk)).flatten()


def routed(one: ElasticResNet, architecture: Architecture) -> SliceMap:
    return LeadingSlices.of(one.layout, one.shapes(architecture))


def real_positions(one: ElasticResNet, chunks: torch.Tensor, chunk: int) -> set[int]:
    """Return the positions that chunks name, pads behind the tensors left out."""
    return set(positions_of(chunks, chunk).tolist()) & set(routed(one, one.space.largest).index().tolist())


@cases
@every_architecture
def test_the_index_names_the_positions_that_are_routed(
    one: ElasticResNet, chunk: int, architecture: Architecture
) -> None:
    blueprint = make_blueprint(one, architecture, plan_whole_gradients(one, architecture), chunk, CPU)
    assert blueprint.index.dtype == torch.int32
    assert blueprint.index.numel() * chunk % CHUNK == 0
    positions = positions_of(blueprint.index, chunk)
    source = torch.arange(one.layout.size)
    compact, local = routed(one, architecture).layout.views(routed(one, architecture).gather(source)), {}
    local = blueprint.layout.views(positions)
    assert local.keys() == compact.keys()
    for name, expected in compact.items():
        assert torch.equal(local[name], expected), name
    if chunk == 1:
        assert sorted(positions[positions >= 0].tolist()) == routed(one, architecture).index().tolist()


@cases
@every_architecture
def test_convolutions_come_first_and_are_rounded(one: ElasticResNet, chunk: int, architecture: Architecture) -> None:
    blueprint = make_blueprint(one, architecture, plan_whole_gradients(one, architecture), chunk, CPU)
    for name, shape in blueprint.layout.shapes.items():
        assert blueprint.layout.offsets[name] % CHUNK == 0
        assert (blueprint.layout.offsets[name] < blueprint.num_rounded) == (len(shape) == 4), name


def test_chunks_serve_where_no_slice_tears_them() -> None:
    assert chunk_of(WHOLE.layout, [WHOLE.shapes(one) for one in ARCHITECTURES]) == CHUNK
    assert chunk_of(TORN.layout, [TORN.shapes(one) for one in ARCHITECTURES]) == 1
    assert chunk_of(TORN.layout, [TORN.shapes(TORN.space.largest)]) == CHUNK, "whole tensors are never torn"


@pytest.mark.parametrize(
    ("full", "part", "chunk"),
    [
        ((16, 16, 3, 3), (16, 16, 3, 3), CHUNK),
        ((16, 16, 3, 3), (8, 8, 3, 3), CHUNK),
        ((16, 16, 3, 3), (16, 12, 3, 3), 1),
        ((16, 12, 3, 3), (16, 8, 3, 3), 1),  # rows start between chunks
        ((16, 12, 3, 3), (2, 12, 3, 3), CHUNK),
        ((16, 12, 1, 1), (5, 12, 1, 1), 1),
        ((5, 16), (5, 8), CHUNK),
        ((5, 16), (5, 4), 1),
        ((10,), (10,), CHUNK),
        ((16,), (8,), CHUNK),
        ((16,), (10,), 1),
    ],
)
def test_one_torn_slice_is_enough(full: tuple[int, ...], part: tuple[int, ...], chunk: int) -> None:
    layout = Layout.of({"before": (16,), "one": full, "after": (16,)}, alignment=8)
    assert chunk_of(layout, [{"before": (16,), "one": part}]) == chunk


def test_tensors_that_start_between_chunks_are_torn() -> None:
    assert chunk_of(Layout.of({"one": (10,), "other": (16,)}), [{"other": (16,)}]) == 1


@cases
@every_architecture
def test_active_and_passive_positions_divide_what_is_routed(
    one: ElasticResNet, chunk: int, architecture: Architecture
) -> None:
    used = [one.space.smallest, architecture]
    active = active_positions(one, used, chunk, CPU)
    slices = routed(one, one.space.largest)
    passive = passive_positions(slices, active, chunk)
    assert active.dtype == passive.dtype == torch.int32
    assert active.tolist() == sorted(set(active.tolist()))
    trained, decayed = real_positions(one, active, chunk), real_positions(one, passive, chunk)
    assert not trained & decayed
    assert trained | decayed == set(slices.index().tolist())
    assert trained == set().union(*(routed(one, each).index().tolist() for each in used))


@pytest.mark.parametrize("chunk", [8, 1])
def test_ranges_of_an_index_are_its_tensors(chunk: int) -> None:
    layout, shapes = WHOLE.layout, WHOLE.shapes(ARCHITECTURES[2])
    index = active_positions(WHOLE, [ARCHITECTURES[2]], chunk, CPU)
    ranges = tensor_ranges(layout, index, chunk)
    assert joined_ranges(ranges.values()) == [(0, len(index))]
    for name, (start, stop) in ranges.items():
        inside = {name: shapes[name]} if name in shapes else {}
        used = torch.zeros(layout.size + -layout.size % chunk, dtype=torch.bool)
        for view in layout.views(used, inside).values():
            view.fill_(True)
        assert index[start:stop].tolist() == used.view(-1, chunk).any(1).nonzero().flatten().tolist(), name


def test_joined_ranges_leave_out_what_is_empty() -> None:
    assert joined_ranges([(7, 9), (2, 4), (4, 4), (4, 6), (6, 6)]) == [(2, 6), (7, 9)]
    assert joined_ranges([(3, 3)]) == []


def test_a_slice_that_tears_chunks_is_an_error() -> None:
    with pytest.raises(AssertionError, match="tears chunks"):
        passive_positions(routed(TORN, TORN.space.smallest), torch.zeros(0, dtype=torch.int32), CHUNK)


@every_architecture
@pytest.mark.parametrize("batch", [2, 64])
def test_tables_cover_every_place_once(architecture: Architecture, batch: int) -> None:
    plan = plan_gradients(WHOLE, architecture, (batch, 1, 32, 32))
    blueprint = make_blueprint(WHOLE, architecture, plan, CHUNK, CPU)
    covered = torch.zeros(blueprint.layout.size, dtype=torch.int64)
    named = {blueprint.layout.offsets[name]: place for name, place in plan.places.items()}
    assert blueprint.table.dtype == torch.int32
    for start, count, first, parts, size in blueprint.table.tolist():
        assert 0 < count <= PARTS_TO_SIZE[parts_at_once(parts)]
        assert start % CHUNK == 0, "a program never shares a chunk with another"
        covered[start : start + count] += 1
        offset = max(each for each in named if each <= start)
        place = named[offset]
        assert (first - place.start, parts, size) == (start - offset, place.parts, place.size)
        assert parts_at_once(parts) >= min(parts, max(PARTS_TO_SIZE))
    expected = torch.zeros_like(covered)
    for view in blueprint.layout.views(expected).values():
        view.fill_(1)
    assert torch.equal(covered, expected)
    assert len(blueprint.table) >= len(plan.places)


RANKS = {
    "scale": (),
    "bias": (16,),
    "linear": (12, 24),
    "conv1d": (16, 8, 3),
    "conv2d": (16, 8, 3, 3),
    "conv3d": (8, 16, 1, 2, 3),
}


@pytest.mark.parametrize(
    ("name", "part", "chunk"),
    [
        ("scale", (), CHUNK),
        ("linear", (5, 24), CHUNK),
        ("linear", (5, 16), CHUNK),
        ("linear", (5, 12), 1),
        ("conv1d", (4, 8, 3), CHUNK),
        ("conv1d", (4, 4, 3), 1),
        ("conv1d", (16, 8, 2), 1),
        ("conv2d", (16, 8, 1, 1), CHUNK),  # the input axis lies innermost
        ("conv2d", (1, 8, 2, 3), CHUNK),
        ("conv2d", (2, 4, 3, 3), 1),
        ("conv3d", (3, 4, 1, 2, 3), CHUNK),
        ("conv3d", (3, 5, 1, 2, 3), 1),
        ("conv3d", (1, 16, 1, 2, 2), 1),
    ],
)
def test_chunks_of_any_rank_are_those_that_no_slice_tears(name: str, part: tuple[int, ...], chunk: int) -> None:
    layout = Layout.of(RANKS, alignment=8)
    assert chunk_of(layout, [{name: part}]) == chunk
    # Slow and obvious: within every eight neighbours of the compact tensor, positions follow one another.
    positions = torch.arange(layout.size)
    compact = Layout.of({name: part}).views(torch.full((Layout.of({name: part}).size,), -1))[name]
    compact.copy_(layout.views(positions, {name: part})[name])
    runs = torch.nn.functional.pad(flat_of(compact), (0, -compact.numel() % CHUNK), value=-1).view(-1, CHUNK)
    whole = all(
        int(run[0]) % CHUNK == 0 and all(int(one) in (-1, int(run[0]) + place) for place, one in enumerate(run))
        for run in runs
    )
    ends_inside = compact.numel() % CHUNK != 0 and part != RANKS[name]
    assert (whole and not ends_inside) == (chunk == CHUNK)


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as they lie in memory."""
    return tensor.as_strided((tensor.numel(),), (1,), 0)
