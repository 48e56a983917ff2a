from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Assignment, Client, Parts
from fedfeast.methods import ScaleFL
from fedfeast.methods.depth.scalefl import STAGE_LEVELS
from fedfeast.networks import ElasticResNet, Level, ResNet, SearchSpace
from fedfeast.planning.outline import outline
from fedfeast.population import paper_population
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.variants import Variant, VariantCache

SMALL = ResNet((4, 8, 8), (1, 1, 1), (1, 2, 2), image_size=8, image_channels=1, classes=3, early_exits=True)
THREE_LEVELS = ((1, 0.5), (2, 0.5), (3, 1.0))


@cache
def paper(**options: Any) -> ScaleFL:
    settings = {f"method.{name}": value for name, value in options.items()}
    method = outline(load_recipe("cifar100-paper", {"method.name": "scalefl", **settings})).method
    assert isinstance(method, ScaleFL)
    return method


def in_stages() -> ScaleFL:
    """The levels of the first release, an exit after every stage."""
    return paper(levels=STAGE_LEVELS)


def plan(method: ScaleFL, round_index: int, *budgets: float) -> list[Assignment]:
    cohort = [Client(index, f"client {index}", budget, 10 + index) for index, budget in enumerate(budgets)]
    flat = torch.zeros(method.network.layout.size)
    return method.plan_round(method.initial_state(), flat, cohort, round_index, named_generator(0))[0]


@pytest.mark.parametrize(
    ("widths", "megamacs", "millions"),
    [
        ((1.0, 1.0, 1.0, 1.0), (152.77, 287.00, 421.23, 555.47), (0.156324, 0.694792, 2.820204, 11.265232)),
        ((0.7, 0.7, 0.75, 1.0), (72.6, 137.4, 237.3, 555.5), (0.076, 0.339, 1.60, 11.265)),
        ((0.65, 0.7, 0.85, 1.0), (63.1, 137.4, 300.9, 555.5), None),
        ((0.4, 0.55, 0.75, 1.0), (23.7, 86.3, 237.3, 555.5), (0.026, 0.214, 1.60, 11.265)),
        ((0.4, 0.5, 0.6, 1.0), (23.7, 72.2, 149.5, 555.5), (0.026, 0.180, 1.016, 11.265)),
        ((0.35, 0.45, 0.6, 1.0), (18.5, 56.2, 149.5, 555.5), None),
        ((0.4, 0.4, 0.6, 1.0), (23.7, 45.0, 149.5, 555.5), None),
        ((0.125, 0.25, 0.5, 1.0), (2.6, 18.3, 105.8, 555.5), (0.0035, 0.048, 0.718, 11.265)),
    ],
)
def test_levels_of_resnet_18(
    widths: tuple[float, ...], megamacs: tuple[float, ...], millions: tuple[float, ...] | None
) -> None:
    """The fact sheet's table 3.6: served MACs and trained parameters, as printed."""
    method = ScaleFL(in_stages().network, 4000, tuple(enumerate(widths, start=1)))
    printed = 0.051 if widths[0] < 1 else 0.0061
    assert [point.macs / 1e6 for point in method.operating_points()] == pytest.approx(megamacs, abs=printed)
    if millions is not None:
        trained = [method.network.parameters(tier.trained) / 1e6 for tier in method.tiers]
        assert trained == pytest.approx(millions, abs=4.1e-3 if millions[2] == 1.60 else 5.1e-4)


def test_the_default_levels_end_after_blocks_3_4_5_and_8_and_keep_within_25_million_macs() -> None:
    method = paper()
    assert [point.macs for point in method.operating_points()] == [23_413_708, 72_194_304, 122_540_036, 555_468_800]
    assert [tier.served.channels for tier in method.tiers] == [(21, 43), (32, 64), (38, 76, 153), (64, 128, 256, 512)]
    assert [tier.served.blocks for tier in method.tiers] == [(2, 1), (2, 2), (2, 2, 1), (2, 2, 2, 2)]
    assert [tier.trained.exits for tier in method.tiers] == [(3,), (3, 4), (3, 4, 5), (3, 4, 5, 8)]
    assert [tier.served.exits for tier in method.tiers] == [(3,), (4,), (5,), (8,)]
    assert (method.weighting, method.loss_scale, method.keeps_budgets) == ("samples", 1.0, True)
    assert method.network.layout.num_parameters == 11_271_632
    largest = method.tiers[-1]
    assert method.network.parameters(largest.served) == method.operating_points()[-1].parameters == 11_220_132


def test_a_network_of_few_blocks_has_a_level_per_stage() -> None:
    method = paper_on(ResNet((4, 8, 8, 8), (1, 1, 1, 1), (1, 2, 2, 2), image_size=8, classes=3))
    assert [tier.trained.exits for tier in method.tiers] == [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    assert method.network.early_exits
    deeper = paper_on(ResNet((4, 8, 8), (4, 4, 4), (1, 2, 2), image_size=8, classes=3))
    assert [tier.served.exits for tier in deeper.tiers] == [(4,), (6,), (8,), (12,)], "by shares of the blocks"


def paper_on(network: ResNet, **options: Any) -> ScaleFL:
    elastic = ElasticResNet(SearchSpace())
    cache = VariantCache.of([Variant.of(elastic, elastic.smallest)])
    return ScaleFL.build(Parts(elastic, cache, network, rounds=10), **options)


def authors() -> ScaleFL:
    return paper(preset="authors")


def test_the_authors_levels() -> None:
    """By the fact sheet: 35.33M, 72.19M, 127.07M and 555.42M of convolutions, and 11,271,632 parameters in all."""
    network = authors().network
    assert (network.initialisation, network.exit_blocks) == ("he-normal", (3, 4, 5, 8))
    convolutions = [network.convolution_macs(tier.served) for tier in authors().tiers]
    assert [f"{macs / 1e6:.2f}" for macs in convolutions] == ["35.33", "72.19", "127.07", "555.42"]
    assert [tier.served.channels[0] for tier in authors().tiers] == [26, 32, 39, 64], "rounded up"
    assert network.layout.num_parameters == network.parameters(authors().tiers[-1].trained) == 11_271_632


def test_the_authors_give_level_1_to_everyone() -> None:
    method = authors()
    assert not method.keeps_budgets
    assert method.trains(1.0)
    poor, exact, rich = plan(method, 0, 1.0, 72_194_304, 1.5e9)
    chosen = [one.architectures for one in (poor, exact, rich)]
    assert chosen == [(method.tiers[0].trained,), (method.tiers[1].trained,), (method.tiers[3].trained,)]
    first, second, *_ = method.operating_points()
    assert (first.macs, first.price, second.price) == (35_335_248, 0, second.macs), "it is served to everyone too"


def test_the_authors_loss_weights_add_up_to_a_half() -> None:
    """sum_i i (CE_i + .1 x 9 KL_i) / (L (L + 1)), from the first round on."""
    method = authors()
    for assignment in plan(method, 0, 25e6):
        assert float(assignment.constants["distils"]) == 1.0
    for count in (1, 3):
        exits = drawn_exits(count)
        loss, _ = method.loss("supervised", tuple(exits), BATCH, None, {"distils": torch.tensor(1.0)})
        arrays = [one.detach().numpy() for one in exits]
        assert loss.item() == pytest.approx(0.5 * formula(arrays, LABELS, 0.1, 3.0), rel=1e-7)


def test_the_levels_of_the_first_release() -> None:
    points = in_stages().operating_points()
    assert [point.macs for point in points] == [23_733_700, 72_194_304, 149_507_204, 555_468_800]
    assert [tier.served.channels for tier in in_stages().tiers] == [
        (25,),
        (32, 64),
        (38, 76, 153),
        (64, 128, 256, 512),
    ], "rounded down, unlike HeteroFL's"
    assert [tier.trained.exits for tier in in_stages().tiers] == [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    assert [tier.served.exits for tier in in_stages().tiers] == [(1,), (2,), (3,), (4,)]
    largest = in_stages().tiers[-1]
    assert in_stages().network.parameters(largest.trained) == 11_265_232
    assert in_stages().network.parameters(largest.served) == points[-1].parameters == 11_220_132


@pytest.mark.parametrize(
    ("budget", "stages"), [(25e6, 1), (72_194_303, 1), (72_194_304, 2), (122_540_036, 3), (555_468_799, 3), (1.5e9, 4)]
)
def test_a_client_trains_the_largest_level_it_affords_and_is_charged_for_its_last_exit(
    budget: float, stages: int
) -> None:
    (assignment,) = plan(paper(), 0, budget)
    assert assignment.architectures == (paper().tiers[stages - 1].trained,)
    assert paper().served_macs(assignment) == paper().operating_points()[stages - 1].macs <= budget


def test_all_four_levels_are_trained_by_the_papers_population() -> None:
    payloads = {one.slice_map.payload for one in plan(paper(), 0, *map(float, paper_population().budgets_macs))}
    assert payloads == {paper().network.parameters(tier.trained) for tier in paper().tiers}
    assert len(payloads) == 4


def test_a_client_receives_nothing_behind_its_last_exit() -> None:
    first, second = plan(paper(), 0, 25e6, 100e6)
    parts = [{name.split(".")[0] for name in one.slice_map.layout.shapes} for one in (first, second)]
    assert parts == [{"stem", "stage1", "stage2", "head3"}, {"stem", "stage1", "stage2", "head3", "head4"}]
    assert "stage2.block0.conv1" in first.slice_map.layout.shapes
    assert "stage2.block1.conv1" not in first.slice_map.layout.shapes, "the level ends within a stage"
    whole, _ = plan(in_stages(), 0, 25e6, 100e6)
    assert {name.split(".")[0] for name in whole.slice_map.layout.shapes} == {"stem", "stage1", "head1"}


def test_answers_are_averaged_by_count_and_depths_nobody_trained_stay() -> None:
    method = ScaleFL(SMALL, 100, THREE_LEVELS, weighting="count")
    planned = plan(method, 0, *(point.macs for point in method.operating_points()[:2]))
    answers, previous = Accumulator(SMALL.layout.size), torch.full((SMALL.layout.size,), -1.0)
    for assignment, value in zip(planned, (2.0, 6.0), strict=True):
        answers.add(assignment.slice_map, torch.full((assignment.slice_map.payload,), value), assignment.weight)
    merged = SMALL.layout.views(method.merge(previous, answers))
    assert (merged["head1.weight"][:, :2] == 4.0).all(), "all class rows of both"
    assert (merged["head2.bias"] == 6.0).all()
    assert (merged["stage2.block0.conv1"][:4, :2] == 6.0).all()
    assert (merged["stage2.block0.conv1"][4:] == -1.0).all()
    assert (merged["stage3.block0.conv1"] == -1.0).all()


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def formula(exits: list[np.ndarray], labels: np.ndarray, gamma: float, temperature: float) -> float:
    """Write out [sum_j<L j (CE_j + gamma T^2 KL(last || j)) + L CE_L] / (L (L + 1) / 2), means over the batch."""
    total, rows = 0.0, np.arange(len(labels))
    teacher = softmax(exits[-1] / temperature)
    for number, logits in enumerate(exits, start=1):
        term = -np.log(softmax(logits)[rows, labels]).mean()
        if number < len(exits):
            student = softmax(logits / temperature)
            divergence = (teacher * (np.log(teacher) - np.log(student))).sum(axis=1).mean()
            term += gamma * temperature**2 * divergence
        total += number * term
    return total / (len(exits) * (len(exits) + 1) / 2)


LABELS = np.array([0, 2, 1, 1, 0])
BATCH = Batch(torch.empty(1), torch.from_numpy(LABELS), torch.from_numpy(LABELS), torch.tensor(1.0))


def drawn_exits(count: int) -> list[Tensor]:
    generator = named_generator(0, "exits", count)
    return [torch.from_numpy(generator.normal(size=(5, 3), scale=2.0)).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(("gamma", "temperature"), [(0.05, 3.0), (0.7, 1.5)])
def test_the_loss_is_the_formula_before_and_after_the_warm_up(count: int, gamma: float, temperature: float) -> None:
    method = ScaleFL(SMALL, 100, THREE_LEVELS, distillation=gamma, temperature=temperature)
    exits = drawn_exits(count)
    arrays = [one.detach().numpy() for one in exits]
    for distils, strength in ((0.0, 0.0), (1.0, gamma)):
        loss, carried = method.loss("supervised", tuple(exits), BATCH, None, {"distils": torch.tensor(distils)})
        assert carried is None
        assert loss.item() == pytest.approx(formula(arrays, LABELS, strength, temperature), rel=1e-7)
    if count > 1:
        assert formula(arrays, LABELS, gamma, temperature) != pytest.approx(formula(arrays, LABELS, 0, temperature))


def test_both_labels_of_a_mixed_batch_count_at_every_exit() -> None:
    method, others = ScaleFL(SMALL, 100, THREE_LEVELS), np.array([1, 1, 2, 0, 0])
    exits = drawn_exits(3)
    arrays = [one.detach().numpy() for one in exits]
    mixed = Batch(
        torch.empty(1), torch.from_numpy(LABELS), torch.from_numpy(others), torch.tensor(0.3, dtype=torch.float64)
    )
    loss, _ = method.loss("supervised", tuple(exits), mixed, None, {"distils": torch.tensor(0.0)})
    expected = 0.3 * formula(arrays, LABELS, 0, 3.0) + 0.7 * formula(arrays, others, 0, 3.0)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_teacher_learns_from_the_labels_alone() -> None:
    method = ScaleFL(SMALL, 100, THREE_LEVELS, distillation=1.0)
    gradients = []
    for distils in (0.0, 1.0):
        exits = drawn_exits(3)
        loss, _ = method.loss("supervised", tuple(exits), BATCH, None, {"distils": torch.tensor(distils)})
        gradients.append(torch.autograd.grad(loss, exits))
    torch.testing.assert_close(gradients[0][-1], gradients[1][-1], rtol=0, atol=0)
    assert not torch.allclose(gradients[0][0], gradients[1][0])


@pytest.mark.parametrize(("round_index", "distils"), [(0, 0.0), (1000, 0.0), (1001, 1.0), (3999, 1.0)])
def test_distillation_begins_after_a_quarter_of_the_rounds(round_index: int, distils: float) -> None:
    for assignment in plan(paper(), round_index, 25e6, 1.5e9):
        assert float(assignment.constants["distils"]) == distils


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((), r"method.levels = \[\]: give at least one level"),
        (((0, 0.5),), r"the level \[0, 0.5\]: give 1 to 3 stages"),
        (((4, 0.5),), r"the level \[4, 0.5\]: give 1 to 3 stages"),
        (((1, 0.5), (2, 0.0)), r"the level \[2, 0.0\]"),
        (((1, 1.01),), r"the level \[1, 1.01\]"),
        (((1, float("nan")),), r"the level \[1, nan\]"),
    ],
)
def test_impossible_levels_are_refused(levels: tuple[tuple[int, float], ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ScaleFL(SMALL, 100, levels)


def test_two_levels_of_the_same_cost_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two levels cost the same"):
        ScaleFL(SMALL, 100, ((1, 0.5), (1, 0.6))).operating_points()


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(InvalidInput, match=r"method.temperature = .*: it must be above 0"):
        ScaleFL(SMALL, 100, THREE_LEVELS, temperature=temperature)


@pytest.mark.parametrize("distillation", [-0.05, float("nan")])
def test_a_negative_distillation_is_refused(distillation: float) -> None:
    with pytest.raises(InvalidInput, match=r"method.distillation = .*: it must not be negative"):
        ScaleFL(SMALL, 100, THREE_LEVELS, distillation=distillation)


def test_a_narrow_level_has_at_least_one_channel() -> None:
    method = ScaleFL(SMALL, 100, ((1, 0.01), (2, 1.0)))
    assert method.tiers[0].served == Level((1,), (1,))


def test_levels_in_blocks_out_of_range_are_refused() -> None:
    for levels, message in (
        (((9, 0.5),), r"the level \[9, 0.5\]: give 1 to 8 blocks"),
        ((), r"method.levels = \[\]: give at least one level as \[blocks, width\]"),
    ):
        with pytest.raises(InvalidInput, match=message):
            paper_on(ResNet(), levels=levels, depth_unit="blocks")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_loss_scale_that_is_not_positive_is_refused(scale: float) -> None:
    with pytest.raises(InvalidInput, match=r"method.loss_scale = .*: it must be above 0"):
        ScaleFL(SMALL, 100, THREE_LEVELS, loss_scale=scale)


@pytest.mark.parametrize("warm_up", [1.5, float("nan")])
def test_a_warm_up_beyond_the_rounds_is_refused(warm_up: float) -> None:
    with pytest.raises(InvalidInput, match=r"method.warm_up = .*: give a share of the rounds, at most 1"):
        ScaleFL(SMALL, 100, THREE_LEVELS, warm_up=warm_up)
