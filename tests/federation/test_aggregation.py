import torch

from fedfeast.federation import Accumulator
from fedfeast.networks import Layout
from fedfeast.routing import SliceMap

LAYOUT = Layout.of({"w": (3,)})


def leading(count: int) -> SliceMap:
    return SliceMap.leading(LAYOUT, {"w": (count,)})


def test_two_clients_three_weights() -> None:
    accumulator = Accumulator(3)
    accumulator.add(leading(1), torch.tensor([2.0]), 1)
    accumulator.add(leading(2), torch.tensor([6.0, 5.0]), 3)
    merged = accumulator.mean(torch.tensor([9.0, 9.0, 0.1]))
    assert merged.tolist() == [5.0, 5.0, torch.tensor(0.1).item()]


def test_the_totals_of_two_shares_add_up_to_those_of_the_whole() -> None:
    shares, whole = (Accumulator(3), Accumulator(3)), Accumulator(3)
    for share, count in zip(shares, (1, 3), strict=True):
        for accumulator in (share, whole):
            accumulator.add(leading(count), torch.arange(count) + 0.5, 2)
    shares[0].totals += shares[1].totals
    assert torch.equal(shares[0].mean(torch.zeros(3)), whole.mean(torch.zeros(3)))


def test_a_lone_answer_is_taken_bit_for_bit() -> None:
    values = torch.tensor([0.1, -1e-30, 3e30])
    accumulator = Accumulator(3)
    accumulator.add(leading(3), values, 12_345)
    assert torch.equal(accumulator.mean(torch.zeros(3)), values)


def test_unrouted_positions_keep_odd_values_bit_for_bit() -> None:
    previous = torch.tensor([1.0, float("nan"), -0.0])
    accumulator = Accumulator(3)
    accumulator.add(leading(1), torch.tensor([2.0]), 5)
    merged = accumulator.mean(previous)
    assert torch.equal(merged.view(torch.int32)[1:], previous.view(torch.int32)[1:])
