"""Methods by name, and those that need few words: one pass a step, the points of a cache, FedAvg."""

from pathlib import Path

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Pass, mixed_cross_entropy
from fedfeast.methods import METHODS, Feast, FedAvg, find_method
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.served_variants import cached_points
from fedfeast.networks import ElasticResNet, Level, SearchSpace
from fedfeast.own_code import trust, trusting
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.routing import LeadingSlices
from fedfeast.variants import read_cache


def test_methods_are_found_by_name_module_and_file() -> None:
    assert all(find_method(name) is method for name, method in METHODS.items())
    trust("fedfeast.methods.feast:Feast")
    assert find_method("fedfeast.methods.feast:Feast") is Feast


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("feest", "'feest' is unknown \\(did you mean 'feast'"),
        ("heterofll", "did you mean 'heterofl'"),
        ("qqq", "is unknown: choose one of feast, heterofl"),
        ("nowhere.py:Mine", "nowhere.py, which is no Python file"),
        ("no_such_module:Mine", "'no_such_module', which cannot be imported"),
        ("fedfeast.methods.feast:Fest", "has no class Fest"),
        ("fedfeast.methods.feast:SliceMap", "has no class SliceMap derived from"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str) -> None:
    with trusting(), pytest.raises(InvalidInput, match=message):
        find_method(name)


def test_code_from_elsewhere_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("raise AssertionError('imported')\n")
    with pytest.raises(InvalidInput, match=r"method\.name = .*theirs\.py was not trusted on this machine before"):
        find_method(f"{tmp_path / 'theirs.py'}:Theirs")


def test_one_point_per_variant() -> None:
    cache = read_cache("cifar100-56", ElasticResNet(SearchSpace()))
    points = cached_points(cache)
    assert [point.architecture for point in points] == [variant.architecture for variant in cache]
    assert len({point.name for point in points}) == 56


NARROW, WIDE = Level((2, 4), (2,)), Level((4, 8), (2,))


def test_a_step_is_one_pass_of_the_last_network_and_the_loss_that_of_the_last_exit() -> None:
    method, _ = build_method(load_recipe("digits", {"method.name": "heterofl"}))
    assert isinstance(method, OnePassMethod)
    slices = LeadingSlices.of(method.network.layout, {})
    assignment = Assignment(Client(0, "a", 1e6, 3), slices, (NARROW, WIDE), 1.0)
    assert method.passes(assignment, 0, named_generator(0, "passes")) == [Pass(WIDE, "supervised")]
    assert method.expected_passes(assignment) == {WIDE: 1.0}
    labels = torch.tensor([1, 0])
    batch = Batch(torch.zeros(2, 1, 8, 8), labels, labels, torch.tensor(1.0))
    first, last = torch.randn(2, 3), torch.randn(2, 3)
    loss, carried = method.loss("supervised", (first, last), batch, None, {})
    assert torch.equal(loss, mixed_cross_entropy(last, batch))
    assert carried is None


def test_who_shares_it() -> None:
    shared = {"fedavg", "heterofl", "fiarse", "superfednas", "deepfednas"}
    assert {name for name in (*shared, "feast") if issubclass(find_method(name), OnePassMethod)} == shared


NETWORK = ElasticResNet(SearchSpace())
CACHE = read_cache("cifar100-56", NETWORK)


def test_without_a_limit_the_smallest_variant_serves_everybody() -> None:
    assert FedAvg(NETWORK, CACHE).variant == CACHE[0]


def test_with_a_limit_only_those_who_afford_the_variant_train() -> None:
    method = FedAvg(NETWORK, CACHE, max_macs=60e6)
    assert method.variant == CACHE[3]
    assert method.trains(CACHE[3].macs)
    assert not method.trains(CACHE[3].macs - 1)
    assert [point.macs for point in method.operating_points()] == [CACHE[3].macs]


def test_a_limit_below_the_smallest_variant_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"method.max_macs = 1000 .* at least 24967328"):
        FedAvg(NETWORK, CACHE, max_macs=1e3).operating_points()
