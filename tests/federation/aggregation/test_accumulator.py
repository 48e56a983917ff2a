import torch

from fedfeast.federation import Accumulator
from fedfeast.networks import Layout
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions, SliceMap

LAYOUT = Layout.of({"w": (3,)})


def leading(count: int) -> SliceMap:
    return LeadingSlices.of(LAYOUT, {"w": (count,)})


def test_two_clients_three_weights() -> None:
    accumulator = Accumulator(3)
    accumulator.add(leading(1), torch.tensor([2.0]), 1)
    accumulator.add(leading(2), torch.tensor([6.0, 5.0]), 3)
    merged = accumulator.merged_with(torch.tensor([9.0, 9.0, 0.1]))
    assert merged.tolist() == [5.0, 5.0, torch.tensor(0.1).item()]


def test_the_totals_of_two_shares_add_up_to_those_of_the_whole() -> None:
    shares, whole = (Accumulator(3), Accumulator(3)), Accumulator(3)
    for share, count in zip(shares, (1, 3), strict=True):
        for accumulator in (share, whole):
            accumulator.add(leading(count), torch.arange(count) + 0.5, 2)
    shares[0].totals += shares[1].totals
    assert torch.equal(shares[0].merged_with(torch.zeros(3)), whole.merged_with(torch.zeros(3)))


def test_a_lone_answer_is_taken_bit_for_bit() -> None:
    values = torch.tensor([0.1, -1e-30, 3e30])
    accumulator = Accumulator(3)
    accumulator.add(leading(3), values, 12_345)
    assert torch.equal(accumulator.merged_with(torch.zeros(3)), values)


def test_unrouted_positions_keep_odd_values_bit_for_bit() -> None:
    previous = torch.tensor([1.0, float("nan"), -0.0])
    accumulator = Accumulator(3)
    accumulator.add(leading(1), torch.tensor([2.0]), 5)
    merged = accumulator.merged_with(previous)
    assert torch.equal(merged.view(torch.int32)[1:], previous.view(torch.int32)[1:])


def test_a_client_has_no_say_where_its_answer_does_not_count() -> None:
    accumulator, previous = Accumulator(3), torch.tensor([9.0, 9.0, 0.1])
    accumulator.add(leading(3), torch.tensor([2.0, 4.0, 6.0]), 1, torch.tensor([True, False, False]))
    accumulator.add(leading(2), torch.tensor([6.0, 5.0]), 3, torch.tensor([True, True]))
    assert accumulator.weights.tolist() == [4.0, 3.0, 0.0]
    assert accumulator.merged_with(previous).tolist() == [5.0, 5.0, torch.tensor(0.1).item()]


def test_what_does_not_count_may_be_anything() -> None:
    accumulator = Accumulator(3)
    accumulator.add(leading(3), torch.tensor([2.0, torch.nan, torch.inf]), 2, torch.tensor([True, False, False]))
    accumulator.add(leading(2), torch.tensor([2.0, 3.0]), 1)
    assert accumulator.merged_with(torch.tensor([0.0, 1.0, -0.0])).tolist() == [2.0, 3.0, -0.0]


def test_counting_everywhere_is_counting_without_a_mask() -> None:
    masked, plain = Accumulator(3), Accumulator(3)
    for weight in (1.0, 0.3):
        values = torch.tensor([0.1, -1e-30, 3e30]) * weight
        masked.add(leading(3), values, weight, torch.ones(3, dtype=torch.bool))
        plain.add(leading(3), values, weight)
    assert torch.equal(masked.totals, plain.totals)


def test_a_mask_is_of_the_clients_own_vector() -> None:
    previous, answer = torch.zeros(3), torch.tensor([2.0, 4.0])
    chosen = Accumulator(3)
    chosen.add(ChosenSlices.of(LAYOUT, {"w": (torch.tensor([0, 2]),)}), answer, 5, torch.tensor([False, True]))
    assert chosen.merged_with(previous).tolist() == [0.0, 0.0, 4.0]
    assert chosen.weights.tolist() == [0.0, 0.0, 5.0]
    single = Accumulator(3)
    sent = MaskedPositions.of(LAYOUT, torch.tensor([True, False, True]))
    single.add(sent, torch.tensor([2.0, 7.0, 4.0]), 5, torch.tensor([False, True, True]))
    assert single.merged_with(previous).tolist() == [0.0, 0.0, 4.0], "what was not sent does not count either"
    assert single.weights.tolist() == [0.0, 0.0, 5.0]
