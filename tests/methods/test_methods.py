"""Methods by name, one pass a step, the points of a cache, and controls on another network."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Method, Pass, mixed_cross_entropy
from fedfeast.methods import METHODS, Feast, find_method
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


def test_modules_are_found_where_they_stood_before_the_folders() -> None:
    assert import_module("fedfeast.methods.feast").Feast is Feast
    assert import_module("fedfeast.methods.importance") is import_module("fedfeast.methods.width.importance")
    program = (
        "import fedfeast.methods.nested as former; from fedfeast.methods.fedavg import FedAvg; former.OrderedDropout"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


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


def control(name: str, **options: Any) -> Method:
    settings = {"method.name": name, **{f"method.{key}": value for key, value in options.items()}}
    return build_method(load_recipe("cifar100-paper", settings))[0]


def test_feasts_rule_on_the_resnet_trains_its_widths() -> None:
    method = control("feast", backbone="resnet")
    assert isinstance(method, Feast)
    assert [round(point.macs / 1e6, 2) for point in method.operating_points()] == [23.12, 91.10, 202.99, 360.40, 555.47]
    poor, rich = (method.assign(Client(0, "", budget, 7)) for budget in (30e6, 1e9))
    assert (len(poor.architectures), len(rich.architectures)) == (1, 5)
    assert rich.slice_map.payload == 11_220_132
    smallest, largest = rich.architectures[0], rich.architectures[-1]
    passes = method.passes(rich, 0, named_generator(0, "passes"))
    assert [(one.architecture, one.role) for one in passes[:2]] == [(largest, "teacher"), (smallest, "student")]
    assert passes[2].architecture in rich.architectures[1:-1]
    heterofls = control("feast", backbone="resnet", widths=[1.0, 0.5, 0.25, 0.125, 0.0625]).operating_points()
    assert [point.macs for point in heterofls][::4] == [2_276_480, 555_468_800]


def test_fedavg_on_the_resnet() -> None:
    method = control("fedavg", backbone="resnet", max_macs=556e6)
    assert [(point.macs, point.parameters) for point in method.operating_points()] == [(555_468_800, 11_220_132)]
    assert not method.trains(555e6)


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("heterofl", [19_066_560, 36_487_776, 72_276_160, 201_412_768, 595_791_168]),
        ("fedrolex", [19_066_560, 36_487_776, 72_276_160, 201_412_768, 595_791_168]),
        ("fjord", [45_983_808, 116_519_040, 241_382_592, 369_611_008, 595_791_168]),
    ],
)
def test_slicing_methods_on_the_largest_cached_variant(name: str, macs: list[int]) -> None:
    method = control(name, backbone="elastic")
    assert [point.macs for point in method.operating_points()] == macs
    assert method.network.layout.shapes == NETWORK.shapes(CACHE[-1].architecture), "nothing around the variant"
    cohort = [Client(0, "", 40e6 if name != "fjord" else 50e6, 7), Client(1, "", 1e9, 5)]
    flat = torch.zeros(method.network.layout.size)
    poor, rich = method.plan_round(method.initial_state(), flat, cohort, 3, named_generator(0))[0]
    assert rich.slice_map.payload == method.network.layout.num_parameters
    assert poor.slice_map.payload == method.network.parameters(poor.architectures[-1])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("feast", {"widths": [0.5, 1.0]}, r"method.widths = \[0.5, 1.0\] are of the ResNet, .*method.backbone=resnet"),
        ("fedavg", {"widths": [0.5, 1.0]}, r"method.widths = \[0.5, 1.0\] are of the ResNet"),
        ("feast", {"backbone": "resnet", "widths": [2.0]}, r"method.widths = \[2.0\]: give shares"),
        ("fjord", {"backbone": "elastic", "widths": [0.0]}, r"method.widths = \[0.0\]: give shares"),
        ("heterofl", {"backbone": "elastic", "activation": "after"}, 'method.activation = "after" is the ResNet\'s'),
        ("heterofl", {"backbone": "elastic", "initialisation": "he-normal"}, "method.initialisation = .*leave one"),
        ("heterofl", {"scaler": "after-activation"}, 'method.activation = "before", where a norm undoes it'),
        ("heterofl", {"nominal_macs": 0.0}, "method.nominal_macs = 0.0: give MACs above 0"),
        ("fiarse", {"nominal_macs": 5e8}, 'method.nominal_macs = 500000000.0 with method.threshold = "macs"'),
        ("fiarse", {"threshold": "parameters", "nominal_macs": -1.0}, "method.nominal_macs = -1.0"),
        ("fiarse", {"learning_rate": 0.0}, "method.learning_rate = 0.0: give a positive number"),
        ("fiarse", {"clip_norm": -1.0}, "method.clip_norm = -1.0: give a positive number"),
        ("fiarse", {"momentum": 1.0}, "method.momentum = 1.0: give a number from 0 to below 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        control(name, **options)
