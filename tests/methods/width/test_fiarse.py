from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.engines.eager import ClientSlot
from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Assignment, Client, LocalSgd, Pass, mixed_cross_entropy
from fedfeast.methods import Fiarse
from fedfeast.methods.width.importance import Importance, rank_positions
from fedfeast.networks import ResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.routing import MaskedPositions

SMALL = ResNet((4, 8), (1, 1), (1, 2), image_size=6, image_channels=1, classes=3)
WHOLE_MACS = SMALL.macs(SMALL.whole)
masks = pytest.mark.parametrize("layerwise", [False, True], ids=["global", "layerwise"])


@cache
def paper() -> Fiarse:
    method = outline(load_recipe("cifar100-paper", {"method.name": "fiarse"})).method
    assert isinstance(method, Fiarse)
    return method


def first_weights() -> Tensor:
    return SMALL.initial_weights(named_generator(0, "weights"))


def plan(method: Fiarse, flat: Tensor, budgets: Sequence[float]) -> list[Assignment]:
    cohort = [Client(index, f"client {index}", budget, 10 + index) for index, budget in enumerate(budgets)]
    return method.plan_round(method.initial_state(), flat, cohort, 0, named_generator(0))[0]


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Every vector whose weights are ranked from now on."""
    ranked: list[Tensor] = []

    def counting(network: ResNet, flat: Tensor, layerwise: bool) -> Importance:
        ranked.append(flat.clone())
        return rank_positions(network, flat, layerwise)

    monkeypatch.setattr("fedfeast.methods.width.fiarse.rank_positions", counting)
    return ranked


@masks
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_a_client_is_sent_its_largest_weights_within_its_budget(layerwise: bool, share: float) -> None:
    method, flat = Fiarse(SMALL, layerwise), first_weights()
    (assignment,) = plan(method, flat, [share * WHOLE_MACS])
    assert isinstance(assignment.slice_map, MaskedPositions)
    sent = assignment.slice_map.mask
    assert torch.equal(sent, flat.abs() >= assignment.constants["thresholds"])
    cost = method.served_macs(assignment)
    assert cost == int(SMALL.position_macs(SMALL.whole)[sent].sum())
    assert 0.9 * share * WHOLE_MACS < cost <= share * WHOLE_MACS
    assert assignment.slice_map.payload == int(sent.sum())
    norms = [view for name, view in SMALL.layout.views(sent).items() if name.endswith((".scale", ".shift"))]
    assert all(bool(view.all()) for view in norms)


@masks
def test_whoever_affords_the_whole_network_gets_it(layerwise: bool) -> None:
    flat = first_weights()
    flat[SMALL.layout.offsets["stem.conv"]] = 0.0  # a weight of size 0 is a weight too
    for assignment in plan(Fiarse(SMALL, layerwise), flat, [WHOLE_MACS, 1e12]):
        assert assignment.slice_map.payload == SMALL.layout.num_parameters
    (almost,) = plan(Fiarse(SMALL, layerwise), flat, [WHOLE_MACS - 1])
    assert almost.slice_map.payload < SMALL.layout.num_parameters


def test_one_sort_serves_a_cohort_and_a_grid(sorts: list[Tensor]) -> None:
    method, flat = Fiarse(SMALL, num_points=5), first_weights()
    plan(method, flat, [share * WHOLE_MACS for share in (0.1, 0.3, 0.5, 2.0)])
    assert len(sorts) == 1
    for point in method.operating_points():
        method.deploy(flat, point)
    assert len(sorts) == 1
    plan(method, flat.clone(), [WHOLE_MACS / 2])
    assert len(sorts) == 2, "another vector"


def test_an_in_place_change_is_noticed(sorts: list[Tensor]) -> None:
    method, flat = Fiarse(SMALL), first_weights()
    (before,) = plan(method, flat, [WHOLE_MACS / 2])
    SMALL.layout.views(flat)["head2.weight"].mul_(100)  # through a view of it
    (after,) = plan(method, flat, [WHOLE_MACS / 2])
    assert len(sorts) == 2
    assert torch.equal(sorts[1], flat)
    head = SMALL.layout.views(after.slice_map.mask)["head2.weight"]  # type: ignore[attr-defined]
    assert bool(head.all())
    assert not torch.equal(before.slice_map.index(), after.slice_map.index())


def test_the_cache_keeps_no_vector_alive(sorts: list[Tensor]) -> None:
    method = Fiarse(SMALL)
    for _ in range(3):
        plan(method, first_weights(), [WHOLE_MACS / 2])  # may be given the same address again
    assert len(sorts) == 3


CONSTANTS = {"thresholds": torch.tensor([0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, torch.inf])}
WEIGHTS = torch.tensor([0.0, -3.0, 0.5, -0.5, 0.49, -1.0, 5e4, 0.0])
KEPT = [True, True, True, True, False, True, True, False]


def test_passes_compute_with_the_weights_at_or_above_their_threshold() -> None:
    effective = Fiarse(SMALL).weights(WEIGHTS, CONSTANTS)
    assert effective.tolist() == [value if kept else 0.0 for value, kept in zip(WEIGHTS.tolist(), KEPT, strict=True)]


def test_the_intended_gradient_is_enlarged_near_the_threshold() -> None:
    gradient = torch.tensor([2.0, 2.0, 2.0, -2.0, 2.0, 2.0, 2.0, 2.0])
    got = Fiarse(SMALL).weight_gradient(gradient, WEIGHTS, CONSTANTS)
    # At a threshold of 0 by 1, at |w| = theta by 1.5, at twice theta by 1 + 4 / 9, far above by 1; below not at all.
    expected = [2.0, 2.0, 3.0, -3.0, 0.0, 2 * (1 + 4 / 9), 2.0, 0.0]
    assert got.tolist() == pytest.approx(expected, rel=1e-4)
    assert got[:5].tolist() == expected[:5], "exactly"


def test_the_multiplier_falls_from_1_5_to_1() -> None:
    sizes = torch.logspace(0, 6, 200, dtype=torch.float64)  # in thresholds
    constants = {"thresholds": torch.full((200,), 0.01, dtype=torch.float64)}
    got = Fiarse(SMALL).weight_gradient(torch.ones(200, dtype=torch.float64), 0.01 * sizes, constants)
    torch.testing.assert_close(got, 1 + 2 * sizes / (sizes + 1) ** 2)
    assert bool((got.diff() < 0).all())
    assert got[0] == 1.5
    assert 1 < got[-1] < 1.00001


def test_the_released_gradient_is_masked_alone() -> None:
    gradient = torch.arange(1.0, 9.0)
    got = Fiarse(SMALL, gradient="released").weight_gradient(gradient, WEIGHTS, CONSTANTS)
    assert got.tolist() == [value if kept else 0.0 for value, kept in zip(gradient.tolist(), KEPT, strict=True)]


def test_the_intended_gradient_is_that_of_a_smooth_mask() -> None:
    """The paper's rule: d(w m)/dw where the mask's own slope at |w| >= theta is taken as 2 theta / (|w| + theta)^2."""
    weights = torch.tensor([0.7, -0.9, 2.0], dtype=torch.float64, requires_grad=True)
    theta = torch.full((3,), 0.6, dtype=torch.float64)
    size = weights.abs()
    mask = 1 + (size - size.detach()) * (2 * theta / (size + theta) ** 2).detach()
    (expected,) = torch.autograd.grad((weights * mask).sum(), weights)
    got = Fiarse(SMALL).weight_gradient(torch.ones(3, dtype=torch.float64), weights.detach(), {"thresholds": theta})
    torch.testing.assert_close(got, expected)


def test_a_weight_that_falls_below_its_threshold_is_out_for_the_round() -> None:
    method, flat = Fiarse(SMALL), first_weights()
    (assignment,) = plan(method, flat, [WHOLE_MACS / 2])
    slot = ClientSlot(method, torch.float32, torch.device("cpu"))
    slot.load(assignment, assignment.slice_map.gather(flat))
    sent = assignment.slice_map.mask  # type: ignore[attr-defined]
    within = int(SMALL.layout.views(sent)["head2.weight"].flatten().nonzero()[0])
    place = SMALL.layout.offsets["head2.weight"] + within
    computed_with = slot.leaves(SMALL.whole).weights["head2.weight"].detach().flatten()

    def step(gradient: float) -> float:
        """Move the one weight by its gradient; return what passes compute with next."""
        slot.begin_step()
        slot.gradient[place] = gradient
        slot.end_step(LocalSgd(0.0, 1e9), 1.0)
        slot.begin_step()
        return float(computed_with[within])

    size, sign = abs(float(flat[place])), float(flat[place].sign())
    threshold = float(assignment.constants["thresholds"][place])
    assert size > threshold > 0
    multiplier = 1 + 2 * threshold * size / (size + threshold) ** 2
    assert step(sign * 0.9 * size / multiplier) == 0.0
    fallen = float(slot.weights[place])
    assert fallen == pytest.approx(0.1 * sign * size, rel=1e-4), "the weight itself stays where the step left it"
    assert step(-sign * size) == 0.0
    assert float(slot.weights[place]) == fallen, "without a gradient it cannot come back"


def test_training_is_charged_dense() -> None:
    method = Fiarse(SMALL)
    (assignment,) = plan(method, first_weights(), [0.1 * WHOLE_MACS])
    assert method.passes(assignment, 0, named_generator(0)) == [Pass(SMALL.whole, "supervised")]
    assert method.expected_passes(assignment) == {SMALL.whole: 1.0}
    assert method.trained_architectures() == (SMALL.whole,)
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.25))
    logits = torch.tensor([[1.0, 2.0, 0.0]])
    loss, carried = method.loss("supervised", (logits,), batch, None, assignment.constants)
    assert float(loss) == float(mixed_cross_entropy(logits, batch))
    assert carried is None


def test_weights_do_not_decay_unless_asked() -> None:
    common = LocalSgd(5e-4, 10.0)
    assert Fiarse(SMALL).optimiser(common) == LocalSgd(0.0, 10.0)
    assert Fiarse(SMALL, weight_decay=0.1).optimiser(common) == LocalSgd(0.1, 10.0)


def test_the_authors_optimiser_can_be_set() -> None:
    authors = Fiarse(SMALL, learning_rate=0.05, momentum=0.0, clip_norm=float("inf"))
    common = LocalSgd(1e-4, 10.0, 0.9, 0.025, "keep")
    assert authors.optimiser(common) == LocalSgd(0.0, float("inf"), 0.0, 0.05, "keep")


def merge_by_loop(previous: list[float], sent: list[list[bool]], returned: list[list[float]], by_delta: bool) -> Any:
    """Take w - sum of deltas / how many have a say, one position after another."""
    merged = []
    for position, old in enumerate(previous):
        deltas = []
        for mask, values in zip(sent, returned, strict=True):
            delta = old - values[position]
            if mask[position] and (delta != 0 or not by_delta):
                deltas.append(delta)
        merged.append(old - sum(deltas) / len(deltas) if deltas else old)
    return merged


@pytest.mark.parametrize("membership", ["mask", "delta"])
def test_who_has_a_say(membership: Any) -> None:
    method, flat = Fiarse(SMALL, membership=membership, weighting="count"), first_weights().double()
    planned = plan(method, flat, [share * WHOLE_MACS for share in (0.1, 0.4, 0.7)])
    generator = named_generator(0, "answers")
    answers, sent, returned = Accumulator(SMALL.layout.size), [], []
    for assignment in planned:
        assert assignment.weight == 1.0
        received = assignment.slice_map.gather(flat)
        moved = torch.from_numpy(generator.random(SMALL.layout.size) < 0.7) & (received != 0)
        answer = torch.where(moved, received + torch.from_numpy(generator.normal(size=SMALL.layout.size)), received)
        answers.add(assignment.slice_map, answer, assignment.weight, method.counted(assignment, received, answer))
        sent.append(assignment.slice_map.mask.tolist())  # type: ignore[attr-defined]
        returned.append(answer.tolist())
    merged = method.merge(flat, answers)
    expected = merge_by_loop(flat.tolist(), sent, returned, membership == "delta")
    assert merged.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    other = merge_by_loop(flat.tolist(), sent, returned, membership != "delta")
    assert merged.tolist() != pytest.approx(other, rel=1e-9, abs=1e-12)


def test_answers_weigh_examples_unless_asked_otherwise() -> None:
    planned = plan(Fiarse(SMALL), first_weights(), [WHOLE_MACS] * 3)
    assert [one.weight for one in planned] == [10.0, 11.0, 12.0]


def test_the_papers_grid() -> None:
    points = paper().operating_points()
    assert len(points) == 57
    assert points[0].macs <= 25e6 < points[1].macs, "a client of 25M is served"
    assert points[-1].macs == 555_468_800
    assert points[-1].parameters == 11_220_132
    steps = np.diff([point.macs for point in points])
    assert steps.min() >= steps.max() - 1, "evenly spaced"
    assert len({point.name for point in points}) == 57
    assert paper().least_macs == points[0].macs
    assert (paper().layerwise, paper().gradient, paper().membership) == (False, "intended", "mask")


@masks
def test_a_deployed_network_holds_and_costs_the_kept_weights_alone(layerwise: bool) -> None:
    method, flat = Fiarse(SMALL, layerwise, num_points=6), first_weights()
    images = torch.from_numpy(named_generator(0, "images").normal(size=(4, 1, 6, 6))).float()
    before: set[int] = set()
    for point in method.operating_points():
        deployed = method.deploy(flat, point)
        kept = deployed.flat != 0
        shifts = sum(shape[0] for name, shape in SMALL.layout.shapes.items() if name.endswith(".shift"))
        assert deployed.parameters == int(kept.sum()) + shifts, "shifts start at zero and are never masked"
        assert deployed.macs == int(SMALL.position_macs(SMALL.whole)[kept].sum()) <= point.macs
        assert torch.equal(deployed.flat[kept], flat[kept])
        positions = set(kept.nonzero().squeeze(1).tolist())
        assert before < positions, "a larger budget keeps what a smaller one does"
        before = positions
        (logits,) = SMALL.forward(SMALL.layout.views(deployed.flat), images, SMALL.whole, by_batch)
        assert torch.equal(deployed(images, by_batch), logits)
    assert (deployed.macs, deployed.parameters) == (WHOLE_MACS, SMALL.layout.num_parameters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"membership": "delta", "weight_decay": 5e-4},
            r'method.weight_decay = 0.0005 with method.membership = "delta"',
        ),
        ({"weight_decay": -0.1}, r"method.weight_decay = -0.1: give a number from 0 on"),
        ({"weight_decay": float("nan")}, r"method.weight_decay = nan: give a number from 0 on"),
        ({"learning_rate": -1.0}, r"method.learning_rate = -1.0: give a positive number"),
        ({"momentum": 2.0}, r"method.momentum = 2.0: give a number from 0 to below 1"),
        ({"least_share": 0.0}, r"method.least_share = 0.0 .* above 0 and below 1"),
        ({"least_share": 1.0}, r"method.least_share = 1.0"),
        ({"least_share": float("nan")}, r"method.least_share = nan"),
        ({"num_points": 1}, r"method.num_points = 1: .* at least 2 points"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Fiarse(SMALL, **options)


def test_decay_is_allowed_where_the_mask_decides() -> None:
    assert Fiarse(SMALL, weight_decay=5e-4, membership="mask").weight_decay == 5e-4
