import math
from collections import Counter
from typing import Any

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client
from fedfeast.methods import Feast
from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.randomness import named_generator
from fedfeast.variants import read_cache

NETWORK = ElasticResNet(SearchSpace())
CACHE = read_cache("cifar100-56", NETWORK)


def assign(method: Feast, budget_macs: float) -> Assignment:
    return method.assign(Client(0, "client", budget_macs, 100))


def roles_and_macs(method: Feast, budget_macs: float) -> list[tuple[str, int]]:
    passes = method.passes(assign(method, budget_macs), 0, named_generator(0))
    return [(one.role, NETWORK.macs(one.architecture)) for one in passes]  # type: ignore[arg-type]


SMALLEST, SECOND, LARGEST = CACHE[0].macs, CACHE[1].macs, CACHE[-1].macs


@pytest.mark.parametrize(
    ("rule", "budget", "expected"),
    [
        ("full", 25e6, [("supervised", SMALLEST)]),
        ("full", 36e6, [("teacher", SECOND), ("student", SMALLEST)]),
        ("global-min", 600e6, [("supervised", SMALLEST)]),
        ("local-max", 600e6, [("supervised", LARGEST)]),
        ("local-max", 25e6, [("supervised", SMALLEST)]),
        ("min-max", 600e6, [("supervised", LARGEST), ("supervised", SMALLEST)]),
        ("min-max", 25e6, [("supervised", SMALLEST)]),
        ("min-max-distilled", 600e6, [("teacher", LARGEST), ("student", SMALLEST)]),
    ],
)
def test_the_casewise_passes(rule: TrainingRule, budget: float, expected: list[tuple[str, int]]) -> None:
    assert roles_and_macs(Feast(NETWORK, CACHE, rule), budget) == expected


def test_the_intermediate_is_uniform_over_the_interior() -> None:
    method = Feast(NETWORK, CACHE)
    assignment = assign(method, 70e6)  # five affordable variants, three of them in between
    generator = named_generator(0, "draws")
    drawn: Counter[int] = Counter()
    for step in range(3000):
        largest, smallest, intermediate = method.passes(assignment, step, generator)
        assert (largest.role, smallest.role, intermediate.role) == ("teacher", "student", "student")
        drawn[NETWORK.macs(intermediate.architecture)] += 1  # type: ignore[arg-type]
    assert sorted(drawn) == [variant.macs for variant in CACHE.variants[1:4]]
    assert all(abs(count / 3000 - 1 / 3) < 0.04 for count in drawn.values())


def test_a_client_is_routed_its_envelope_and_weighs_its_examples() -> None:
    method = Feast(NETWORK, CACHE)
    assignment = assign(method, 69.7e6)
    assert assignment.slice_map.payload == 2_427_636
    assert assignment.weight == 100
    assert assign(method, 70e6).slice_map is assignment.slice_map, "one map per distinct envelope"


def batch() -> Batch:
    return Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.5))


def test_the_losses_of_equation_9_on_hand_made_logits() -> None:
    method = Feast(NETWORK, CACHE, distillation_share=0.25)
    teacher_logits = torch.tensor([[math.log(4.0), math.log(1.0)]], requires_grad=True)
    loss, carried = method.loss("teacher", (teacher_logits,), batch(), None, {})
    supervised = -0.5 * math.log(0.8) - 0.5 * math.log(0.2)
    assert math.isclose(loss.item(), supervised, rel_tol=1e-6)
    assert carried is not None
    assert not carried.requires_grad
    torch.testing.assert_close(carried, torch.tensor([[0.8, 0.2]]))

    student_logits = torch.tensor([[math.log(1.0), math.log(1.0)]])
    loss, still_carried = method.loss("student", (student_logits,), batch(), carried, {})
    assert math.isclose(float(loss), 0.75 * math.log(2) + 0.25 * math.log(2), rel_tol=1e-6)
    assert still_carried is carried, "a second student sees the same teacher"

    uneven = torch.tensor([[math.log(3.0), math.log(1.0)]])
    loss, _ = method.loss("student", (uneven,), batch(), carried, {})
    expected = 0.75 * (-0.5 * math.log(0.75) - 0.5 * math.log(0.25)) + 0.25 * (
        -0.8 * math.log(0.75) - 0.2 * math.log(0.25)
    )
    assert math.isclose(float(loss), expected, rel_tol=1e-6)


def test_a_temperature_divides_both_outputs_and_keeps_the_size_of_gradients() -> None:
    method = Feast(NETWORK, CACHE, distillation_share=1.0, temperature=2.0)
    teacher_logits, student_logits = torch.tensor([[math.log(16.0), 0.0]]), torch.tensor([[math.log(9.0), 0.0]])
    _, carried = method.loss("teacher", (teacher_logits,), batch(), None, {})
    torch.testing.assert_close(carried, torch.tensor([[0.8, 0.2]]))
    loss, _ = method.loss("student", (student_logits,), batch(), carried, {})
    assert math.isclose(float(loss), -4 * (0.8 * math.log(0.75) + 0.2 * math.log(0.25)), rel_tol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(InvalidInput, match=r"method.temperature = .*: give a number above 0"):
        Feast(NETWORK, CACHE, temperature=temperature)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_distillation_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match="distillation_share"):
        Feast(NETWORK, CACHE, distillation_share=share)


def test_a_network_that_the_cache_has_twice_is_drawn_twice_as_often() -> None:
    method = Feast(NETWORK, read_cache("cifar100-56-authors", NETWORK, "keep"))
    twice = method.cache[35].architecture
    rich = assign(method, 600e6)
    assert method.expected_passes(rich)[twice] == pytest.approx(2 / 54)
    assert sum(method.expected_passes(rich).values()) == pytest.approx(3)
    # Where it is the client's largest network, the other row is none of those in between.
    poorer = assign(method, 375e6)
    assert poorer.architectures[-2:] == (twice, twice)
    assert method.expected_passes(poorer)[twice] == 1
    generator = named_generator(0, "draws")
    drawn = {method.passes(poorer, step, generator)[2].architecture for step in range(400)}
    assert twice not in drawn
    assert len(drawn) == 34


def test_points_of_equal_price_have_names_of_their_own() -> None:
    points = Feast(NETWORK, read_cache("cifar100-56-authors", NETWORK, "keep")).operating_points()
    assert len({point.name for point in points}) == 56
    assert [points[row].name for row in (22, 35, 36, 55)] == ["228.8M", "369.6M", "369.6M-2", "595.7M"]
    assert (points[55].macs, points[55].price) == (652_064_064, 595_735_872)


def test_an_intermediate_can_be_drawn_in_proportion_to_one_over_its_macs() -> None:
    method = Feast(NETWORK, CACHE, sampling="inverse-macs")
    assignment = assign(method, 70e6)  # three in between
    between = CACHE.variants[1:4]
    total = sum(1 / variant.macs for variant in between)
    expected = method.expected_passes(assignment)
    assert expected[CACHE[0].architecture] == expected[CACHE[4].architecture] == 1
    generator = named_generator(0, "draws")
    drawn = Counter(method.passes(assignment, step, generator)[2].architecture for step in range(3000))
    assert len(drawn) == 3
    for variant in between:
        assert expected[variant.architecture] == pytest.approx(1 / variant.macs / total)
        assert abs(drawn[variant.architecture] / 3000 - expected[variant.architecture]) < 0.04


def test_a_priced_cache_is_drawn_by_its_prices() -> None:
    method = Feast(NETWORK, read_cache("cifar100-56-authors", NETWORK, "keep"), sampling="inverse-macs")
    chances = method.expected_passes(assign(method, 600e6))
    costly, cheap = method.cache[54], method.cache[1]
    assert costly.price != costly.macs
    ratio = chances[cheap.architecture] / chances[costly.architecture]
    assert ratio == pytest.approx(costly.price / cheap.price)
    assert sum(chances.values()) == pytest.approx(3)


def test_sampling_where_nothing_is_drawn_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"method.sampling = 'inverse-macs' .* method.rule = 'min-max' draws none"):
        Feast(NETWORK, CACHE, "min-max", sampling="inverse-macs")


def test_the_smallest_is_trained_in_a_share_of_the_steps() -> None:
    method = Feast(NETWORK, CACHE, smallest_share=0.25)
    generator, rich = named_generator(0, "draws"), assign(method, 600e6)
    steps = [method.passes(rich, step, generator) for step in range(2000)]
    assert all([one.role for one in step] == ["teacher", *["student"] * (len(step) - 1)] for step in steps)
    beside = [step for step in steps if step[1].architecture == CACHE[0].architecture]
    assert {len(step) for step in beside} == {3}
    assert abs(len(beside) / 2000 - 0.25) < 0.03
    assert method.expected_passes(rich)[CACHE[0].architecture] == 0.25
    assert roles_and_macs(method, 25e6) == [("supervised", SMALLEST)], "those who afford nothing else always train it"


def test_students_are_given_the_first_part_of_a_batch_and_of_what_the_teacher_told() -> None:
    method = Feast(NETWORK, CACHE, student_batch=0.3)
    teacher, *students = method.passes(assign(method, 600e6), 0, named_generator(0))
    assert teacher.rows(64) == 64
    assert {one.rows(64) for one in students} == {20}
    assert [students[0].rows(count) for count in (1, 2, 3, 10)] == [1, 2, 2, 3]
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    both = Batch(torch.empty(3), torch.tensor([0, 1, 0]), torch.tensor([1, 1, 0]), torch.tensor(0.5))
    _, carried = method.loss("teacher", (logits,), both, None, {})
    assert carried is not None
    first, left = method.loss("student", (logits[:2],), both.leading(2), carried, {})
    alone, _ = method.loss("student", (logits[:2],), both.leading(2), carried[:2], {})
    assert torch.equal(first, alone)
    assert left is carried, "the next student may be given more"


def test_a_progressive_start_trains_up_to_a_price_that_grows() -> None:
    method = Feast(NETWORK, CACHE, progressive=0.5, rounds=100)
    rich, poor = Client(0, "rich", 1500e6, 10), Client(1, "poor", 100e6, 10)

    def planned(round_index: int) -> list[Assignment]:
        return method.plan_round({}, torch.empty(0), [rich, poor], round_index, named_generator(0))[0]

    assert [len(one.architectures) for one in planned(0)] == [1, 1]
    largest = [NETWORK.macs(planned(index)[0].architectures[-1]) for index in range(0, 51, 5)]  # type: ignore[arg-type]
    assert largest == sorted(largest)
    assert largest[-1] == LARGEST
    middle = (SMALLEST + LARGEST) / 2
    assert middle - 15e6 < NETWORK.macs(planned(25)[0].architectures[-1]) <= middle  # type: ignore[arg-type]
    assert planned(25)[1].architectures == assign(method, 100e6).architectures
    assert planned(50)[0].slice_map is assign(method, 1500e6).slice_map
    shares = method.rounds_alike()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[50] == 0.5
    assert Feast(NETWORK, CACHE).rounds_alike() == {0: 1.0}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"smallest_share": 0.0}, "method.smallest_share = 0.0 and .*: give shares above 0 and up to 1"),
        ({"student_batch": 1.5}, "method.student_batch = 1.5: give shares above 0 and up to 1"),
        ({"smallest_share": 0.5, "rule": "local-max"}, "method.rule = 'local-max' trains one network"),
        ({"student_batch": 0.5, "rule": "min-max"}, "method.rule = 'min-max' has none"),
        ({"progressive": 1.5}, "method.progressive = 1.5: give a share of the rounds from 0 to 1"),
    ],
)
def test_cheaper_training_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Feast(NETWORK, CACHE, **options)
