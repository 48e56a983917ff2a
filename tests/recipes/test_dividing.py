"""Who holds which training examples: by the authors' rules, by files, and by classes in another order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfeast.data import load_dataset
from fedfeast.errors import InvalidInput
from fedfeast.population import Population
from fedfeast.randomness import legacy_stream
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_partition
from fedfeast.recipes.splitting import TrainingDivision, divide_training, split_dataset

AUTHORS: dict[str, Any] = {
    "population.source": "authors",
    "partition.rule": "authors",
    "partition.min_shard": 1,
    "data.split_rule": "authors",
}
LABELS = np.arange(1442) % 10  # as many as digits has
FOUR = Population(np.array([2e5, 4e5, 8e5, 16e5]))
FILED: dict[str, Any] = {"data.validation_examples": 160, "data.calibration_examples": 120}


def divide(settings: dict[str, Any], labels: np.ndarray = LABELS) -> TrainingDivision:
    return divide_training(load_recipe("digits", settings), labels)


def write_shards(folder: Path, *shards: np.ndarray) -> str:
    offsets = np.cumsum([0, *map(len, shards)])
    np.savez(folder / "shards.npz", indices=np.concatenate(shards), offsets=offsets)
    return str(folder / "shards.npz")


def test_the_authors_pool_keeps_the_order_that_they_permuted() -> None:
    division = divide(AUTHORS)
    permuted = legacy_stream(42).permutation(1442)
    assert division.split.clients.tolist() == permuted[280:].tolist()
    assert sorted([*division.split.validation, *division.split.calibration]) == sorted(permuted[:280])
    assert (division.design_labels, dict(division.notes)) == (None, {})


def test_shards_as_loaded_are_those_as_designed_counted_in_the_raw_data() -> None:
    recipe = load_recipe("digits", AUTHORS)
    designed = divide(AUTHORS)
    loaded = divide({**AUTHORS, "partition.loaded": "as-loaded"})
    shards = []
    for division in (designed, loaded):
        partition = build_partition(recipe, FOUR, LABELS[division.split.clients], division=division)
        shards.append((partition.shards, division.split.clients[partition.shards.order]))
    assert shards[0][0].order.tolist() == shards[1][0].order.tolist()  # the same positions
    permuted = legacy_stream(42).permutation(1442)[280:]
    assert shards[0][1].tolist() == permuted[shards[1][1]].tolist()
    assert shards[1][1].max() < 1162
    assert loaded.split.validation.tolist() == designed.split.validation.tolist()


def test_examples_that_two_hold_or_nobody_are_counted() -> None:
    division = divide({**AUTHORS, "partition.loaded": "as-loaded"})
    both = [int((part < 1162).sum()) for part in (division.split.validation, division.split.calibration)]
    held = {*range(1162), *division.split.validation.tolist(), *division.split.calibration.tolist()}
    assert dict(division.notes) == {
        "trained_validation_examples": both[0],
        "trained_calibration_examples": both[1],
        "unused_examples": 1442 - len(held),
    }
    assert both[0] > 100
    partition = build_partition(load_recipe("digits", AUTHORS), FOUR, LABELS[:1162], division=division)
    assert dict(division.notes).items() <= partition.report().items()


def test_a_file_says_whose_an_example_is_and_the_server_takes_of_the_rest(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(1442)[:1162]
    parts = np.split(order, [10, 200, 500])
    settings = {**FILED, "partition.file": write_shards(tmp_path, *parts)}
    recipe, division = load_recipe("digits", settings), divide(settings)
    assert division.split.clients.tolist() == sorted(order)
    everything = np.concatenate((division.split.clients, division.split.validation, division.split.calibration))
    assert sorted(everything) == list(range(1442))
    assert np.bincount(LABELS[division.split.validation]).min() > 0  # evenly over what is left of the classes
    partition = build_partition(recipe, FOUR, LABELS[division.split.clients], division=division)
    for shard, part in zip(partition.shards, parts, strict=True):
        assert division.split.clients[shard].tolist() == part.tolist()
    np.testing.assert_allclose(partition.target_shares, partition.realized_shares)
    assert partition.report()["listed_examples"] == 1162


def test_a_file_needs_no_classes(tmp_path: Path) -> None:
    settings = {**FILED, "partition.file": write_shards(tmp_path, *np.split(np.arange(1162), [300, 600, 900]))}
    numbers = np.random.default_rng(0).random((1442, 2))
    division = divide(settings, numbers)
    partition = build_partition(load_recipe("digits", settings), FOUR, numbers[:1162], division=division)
    assert partition.shards.sizes.tolist() == [300, 300, 300, 262]


def test_both_files_together_must_fit_and_use_everything_unless_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "split.npz", validation=np.arange(0, 160), calibration=np.arange(160, 280))
    files = {
        "data.split_file": str(tmp_path / "split.npz"),
        "partition.file": write_shards(tmp_path, np.arange(280, 700), np.arange(700, 1442)),
    }
    division = divide(files)
    assert division.split.validation.tolist() == list(range(160))
    assert division.split.clients.tolist() == list(range(280, 1442))

    write_shards(tmp_path, np.arange(279, 700), np.arange(700, 1442))
    with pytest.raises(InvalidInput, match=r"the example 279 is a client's by partition.file .* \(1 such\)"):
        divide(files)
    write_shards(tmp_path, np.arange(280, 700), np.arange(703, 1442))
    with pytest.raises(InvalidInput, match=r"leave 3 of 1442 training examples to nobody: .*partition.unused=leave"):
        divide(files)
    assert divide({**files, "partition.unused": "leave"}).notes["unused_examples"] == 3
    write_shards(tmp_path, np.arange(280, 700), np.arange(700, 1443))
    with pytest.raises(InvalidInput, match="names the example 1442, and the data have 1442 training examples"):
        divide(files)


def test_a_file_of_other_clients_or_without_room_for_the_server_is_refused(tmp_path: Path) -> None:
    settings = {**FILED, "partition.file": write_shards(tmp_path, np.arange(1162))}
    division = divide(settings)
    with pytest.raises(InvalidInput, match="has no examples of the client 'client-001'"):
        build_partition(load_recipe("digits", settings), FOUR, LABELS[:1162], division=division)
    write_shards(tmp_path, np.arange(1163))
    with pytest.raises(InvalidInput, match=r"partition.file leaves the server 279 training examples"):
        divide(settings)


def test_the_servers_file_is_read_for_the_real_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "split.npz", validation=[7, 5], calibration=[1, 0, 9])
    recipe = load_recipe("digits", {"data.split_file": str(tmp_path / "split.npz")})
    split = split_dataset(recipe, load_dataset("digits"))
    assert split.validation.places["train"].tolist() == [7, 5]
    assert split.calibration["train"].tolist() == [1, 0, 9]
    assert len(split.pool) == 1442 - 5


def test_permuted_classes_share_the_lot_of_being_last() -> None:
    """What is divided last falls to the few clients that have room: with labels in order always the same classes."""
    shares = Population(np.geomspace(1e5, 1e7, 40))

    def last_clients(order: str, seed: int) -> list[float]:
        recipe = load_recipe("digits", {"partition.class_order": order, "seed": seed})
        shards = build_partition(recipe, shares, LABELS).shards
        counts = np.stack([np.bincount(LABELS[shard], minlength=10) for shard in shards])
        return [float(one) for one in 1 / ((counts / counts.sum(axis=0)) ** 2).sum(axis=0)]

    of_label, permuted = (
        np.mean([last_clients(order, s) for s in range(12)], axis=0) for order in ("label", "permuted")
    )
    assert of_label[-1] < 0.75 * of_label[:5].mean()
    assert abs(permuted[-1] - permuted.mean()) < 0.25 * permuted.mean()
    assert last_clients("permuted", 1) == last_clients("permuted", 1) != last_clients("label", 1)


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        ("digits", {"partition.loaded": "as-loaded"}, "has no effect with partition.rule = 'dirichlet'"),
        (
            "digits",
            {"partition.rule": "authors", "partition.loaded": "as-loaded", "partition.file": "a.csv"},
            "has no effect with partition.file",
        ),
        (
            "digits",
            {"partition.rule": "authors", "partition.loaded": "as-loaded"},
            "and data.split_rule = 'balanced': set data.split_rule=authors.",
        ),
        (
            "digits",
            {"partition.rule": "authors", "partition.class_order": "permuted"},
            "partition.class_order = 'permuted' has no effect with partition.rule = 'authors'",
        ),
        ("digits", {"partition.unused": "leave"}, "has no effect without partition.file"),
        ("digits", {"partition.rule": "author"}, "partition.rule = 'author'"),
        (
            "digits",
            {"data.split_rule": "authors", "data.split_file": "a.npz"},
            "data.split_rule = 'authors' has no effect beside data.split_file",
        ),
        (
            "digits",
            {"data.split_file": "a.npz", "evaluation.by": "clients"},
            "data.split_file has no effect with evaluation.by = 'clients'",
        ),
        (
            "cifar100-authors",
            {"evaluation.by": "clients", "evaluation.selection": "population-score", "evaluation.anchors": "none"}
            | {"evaluation.calibration_augmented": False, "evaluation.calibration_batch": "none"},
            "partition.loaded = 'as-loaded' needs a pool without the server's examples",
        ),
        ("motion", {"partition.file": "a.npz"}, "partition.file has no effect with population.source = 'data'"),
        ("motion", {"data.split_file": "a.npz"}, "data.split_file has no effect with population.source = 'data'"),
        ("digits", {"population.source": "authors", "population.file": "a.csv"}, "population.file = 'a.csv' has no"),
        (
            "digits",
            {"augmentation.crop_padding": 8, "augmentation.crop_fill": "reflect"},
            "augmentation.crop_padding = 8 reaches beyond the mirror image of digits's 8 pixels: give at most 7",
        ),
        ("motion", {"augmentation.crop_fill": "reflect"}, "augmentation.crop_fill = 'reflect' is for images"),
    ],
)
def test_what_does_not_go_together_is_refused(recipe: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_recipe(recipe, settings)
    assert sentence in str(caught.value)


def test_the_authors_way_brings_its_own_defaults() -> None:
    drawn = load_recipe("cifar100-short", {"population": {"source": "authors"}, "partition": {"rule": "authors"}})
    assert (drawn.population.least_macs, drawn.population.below_smallest) == (24_957_968, "lift")
    assert (drawn.partition.min_shard, drawn.partition.alpha_eff) == (10, 0.45)
    given = load_recipe("cifar100-short", {"population.source": "authors", "population.least_macs": 25e6})
    assert given.population.least_macs == 25e6
    plain = load_recipe("cifar100-short", {"population": {"source": "zipf"}, "partition": {}})
    assert (plain.population.least_macs, plain.population.below_smallest, plain.partition.min_shard) == (
        25e6,
        "error",
        1,
    )


def test_a_rule_with_nothing_to_divide_is_passed_over() -> None:
    """A recipe's rules stay where clients evaluate, or are a fleet's or the data's own: nobody has to unset them."""
    rules = {"data.split_rule": "authors", "partition.rule": "authors"}
    assert load_recipe("motion", rules).partition.rule == "authors"
    settings = {**rules, "evaluation.by": "clients", "population.num_clients": 5}
    recipe = load_recipe("digits", settings)
    split = split_dataset(recipe, load_dataset("digits"))
    assert len(split.pool) == len(load_dataset("digits").train), "the server keeps none to itself"
    assert load_recipe("cifar100-paper", {"population.source": "fleet", "evaluation.by": "clients"}).seed == 0
