"""Which examples do what, where the clients are the data's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedfeast.data import Dataset, Examples, NaturalClients, PrepareOptions, prepare_data
from fedfeast.errors import InvalidInput
from fedfeast.population import Population
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.building import build_population
from fedfeast.recipes.splitting import ALL, HELD_OUT, KNOWN, DataSplit, OwnedPlaces, pick, split_dataset

NAMES = tuple(f"person-{number}" for number in range(10))
SIZES = (12, 9, 12, 3, 12, 12, 2, 12, 12, 12)  # of training examples; every third one has a test example beside it


def made_up(classes: bool = True) -> Dataset:
    """Return examples whose first number tells them apart: training ones count up from 0, test ones from 1000."""
    owners = {"train": np.repeat(np.arange(10), SIZES), "test": np.repeat(np.arange(10), 4)}

    def examples(split: str, first: int) -> Examples:
        count = len(owners[split])
        inputs = torch.zeros(count, 2, 4)
        inputs[:, 0, 0] = torch.arange(first, first + count)
        labels = torch.arange(count) % 3 if classes else torch.rand(count, 1)
        return Examples(inputs, labels)

    return Dataset(
        examples("train", 0),
        examples("test", 1000),
        classes=3 if classes else 1,
        clients=NaturalClients(NAMES, owners["train"], owners["test"]),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where "people" lies: a recipe asks for the facts of its data."""
    data, whole = tmp_path_factory.mktemp("data"), made_up()
    assert whole.clients is not None
    np.savez(
        data / "people.npz",
        inputs=np.concatenate([whole.train.inputs, whole.test.inputs]),
        labels=np.concatenate([whole.train.labels, whole.test.labels]),
        person=np.array(NAMES)[np.concatenate([whole.clients.train, whole.clients.test])],
        test=np.arange(len(whole.train) + len(whole.test)) >= len(whole.train),
    )
    prepare_data("people", data / "people.npz", data, PrepareOptions(clients="person", test="test"))
    return data


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Any:
    def load(**settings: Any) -> Recipe:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        base = {
            "data.name": "people",
            "data.folder": str(folder),
            "data.validation_examples": 6,
            "data.calibration_examples": 6,
            "data.held_out_clients": 0.2,
            "data.server_clients": 0.2,
            "data.most_examples": "none",
        }
        return load_recipe("motion", {**base, **given})

    return load


def numbers(dataset: Dataset, owned: OwnedPlaces | dict[str, Any] | Any) -> set[int]:
    places = owned.places if isinstance(owned, OwnedPlaces) else owned
    return {int(one) for one in pick(dataset, places).inputs[:, 0, 0]}


def parts_of(dataset: Dataset, split: DataSplit) -> list[set[int]]:
    tests = [numbers(dataset, one) for one in split.tests.values()]
    server = [numbers(dataset, split.validation), numbers(dataset, split.calibration)]
    return [numbers(dataset, {"train": split.pool}), *server, *tests]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data__server_clients": 0.0},
        {"data__least_examples": 5, "data__small_clients": "pool"},
        {"data__least_examples": 5, "seed": 3},
        {"population__pooled": True},
        {"data__held_out_clients": ["person-2"], "data__server_clients": ["person-0", "person-4"]},
    ],
)
def test_every_example_has_at_most_one_part(recipe: Any, settings: dict[str, Any]) -> None:
    dataset = made_up()
    split = split_dataset(recipe(**settings), dataset)
    parts = parts_of(dataset, split)
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert list(split.tests) == [HELD_OUT, KNOWN]


def owners_of(dataset: Dataset, found: set[int]) -> set[int]:
    assert dataset.clients is not None
    both = dataset.clients
    return {int(both.train[one] if one < 1000 else both.test[one - 1000]) for one in found}


def test_held_out_and_server_clients_never_train(recipe: Any) -> None:
    dataset = made_up()
    settings = {"data__held_out_clients": ["person-2", "person-7"], "data__server_clients": ["person-0", "person-4"]}
    split = split_dataset(recipe(**settings), dataset)
    pool, validation, calibration, held_out, known = (owners_of(dataset, one) for one in parts_of(dataset, split))
    assert held_out == {2, 7}
    assert validation | calibration == {0, 4}
    assert pool == known == {1, 3, 5, 6, 8, 9}
    # All that held-out clients have is tested, and what known ones kept for the test.
    assert len(numbers(dataset, split.tests[HELD_OUT])) == 2 * (12 + 4)
    assert len(numbers(dataset, split.tests[KNOWN])) == 6 * 4
    assert split.tests[HELD_OUT].names == ("person-2", "person-7")
    assert split.natural is not None
    assert split.natural.sizes.tolist() == [9, 3, 12, 2, 12, 12]


def test_owners_stand_in_the_order_of_the_picked_examples(recipe: Any) -> None:
    dataset = made_up()
    split = split_dataset(recipe(data__held_out_clients=["person-7", "person-2"]), dataset)
    tested = split.tests[HELD_OUT]
    assert tested.owners is not None
    drawn = [owners_of(dataset, {int(one)}).pop() for one in pick(dataset, tested.places).inputs[:, 0, 0]]
    assert [NAMES[one] for one in drawn] == [tested.names[one] for one in tested.owners]


def test_without_server_clients_its_examples_come_out_of_the_pool(recipe: Any) -> None:
    dataset = made_up()
    settings = {"data__server_clients": 0.0, "data__held_out_clients": ["person-2"]}
    split = split_dataset(recipe(**settings), dataset)
    pool, validation, calibration, *_ = parts_of(dataset, split)
    assert (len(validation), len(calibration)) == (6, 6)
    assert len(pool) + 12 == sum(SIZES) - SIZES[2]


def test_clients_keep_a_share_back_where_they_validate(recipe: Any) -> None:
    dataset = made_up()
    settings = {"evaluation__by": "clients", "evaluation__client_share": 0.25, "data__server_clients": 0.0}
    split = split_dataset(recipe(**settings, data__held_out_clients=["person-2"]), dataset)
    back = split.validation
    assert back.owners is not None
    kept = np.bincount(back.owners, minlength=len(back.names)).tolist()
    # A quarter each, at least one of two; nothing of it stays in the pool.
    assert dict(zip(back.names, kept, strict=True)) == {
        name: max(1, round(size / 4)) for name, size in zip(NAMES, SIZES, strict=True) if name != "person-2"
    }
    pool = numbers(dataset, {"train": split.pool})
    assert not pool & numbers(dataset, back)
    calibration = numbers(dataset, split.calibration)
    assert calibration < pool
    assert len(calibration) == 6


def test_who_is_pooled_keeps_back_as_one(recipe: Any) -> None:
    dataset = made_up()
    settings = {"evaluation__by": "clients", "data__server_clients": 0.0}
    apart, pooled = (split_dataset(recipe(**settings, population__pooled=one), dataset) for one in (False, True))
    assert parts_of(dataset, apart) == parts_of(dataset, pooled)
    assert pooled.validation.owners is not None
    assert set(pooled.validation.owners.tolist()) == {0}
    assert pooled.validation.names == ("everyone",)


@pytest.mark.parametrize("seed", range(5))
def test_no_client_gives_the_server_its_last_example(recipe: Any, seed: int) -> None:
    settings = {"data__validation_examples": 55, "data__calibration_examples": 15, "data__server_clients": 0.0}
    split = split_dataset(recipe(**settings, data__held_out_clients=["person-2"], seed=seed), made_up())
    assert split.natural is not None
    assert split.natural.sizes.min() >= 1
    assert split.natural.sizes.sum() == sum(SIZES) - SIZES[2] - 70


def test_a_client_uses_at_most_so_many_examples(recipe: Any) -> None:
    dataset = made_up()
    split = split_dataset(recipe(data__most_examples=6), dataset)
    assert split.natural is not None
    assert split.natural.sizes.max() == 6
    labels = dataset.train.labels.numpy()[split.pool]
    whole = np.flatnonzero(split.natural.sizes == 6)
    for client in whole:
        assert np.bincount(labels[split.natural.owners == client]).tolist() == [2, 2, 2]


def test_pooled_everyone_is_one_client_with_the_same_examples(recipe: Any) -> None:
    dataset = made_up()
    settings = {"data__most_examples": 6, "data__least_examples": 3}
    apart, pooled = (split_dataset(recipe(**settings, population__pooled=one), dataset) for one in (False, True))
    assert parts_of(dataset, apart) == parts_of(dataset, pooled)
    assert pooled.natural is not None
    assert apart.natural is not None
    assert pooled.natural.division.names == ("everyone",)
    assert pooled.natural.sizes.tolist() == [len(apart.pool)]
    assert pooled.natural.division.report() == {
        **apart.natural.division.report(),
        "training": 1,
        "pooled": len(apart.natural.division.names),
    }
    # What is tested is told by client as before.
    assert pooled.tests[KNOWN].names == apart.tests[KNOWN].names == apart.natural.division.names
    population = build_population(recipe(**settings, population__pooled=True), pooled)
    assert isinstance(population, Population)
    assert population.names == ("everyone",)
    assert population.budgets_macs.tolist() == [recipe().population.greatest_macs]


def test_labels_without_classes_are_dealt_out_alike(recipe: Any) -> None:
    dataset = made_up(classes=False)
    split = split_dataset(recipe(data__most_examples=4), dataset)
    parts = parts_of(dataset, split)
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_there_must_be_something_to_test(recipe: Any) -> None:
    whole = made_up()
    assert whole.clients is not None
    none = np.empty(0, dtype=np.int64)
    dataset = Dataset(
        whole.train,
        whole.test.select(torch.from_numpy(none)),
        3,
        clients=NaturalClients(NAMES, whole.clients.train, none),
    )
    with pytest.raises(InvalidInput, match=r"nothing to test on: .* set data.held_out_clients, e.g. to 0.2"):
        split_dataset(recipe(data__held_out_clients=0.0), dataset)
    assert list(split_dataset(recipe(), dataset).tests) == [HELD_OUT]


def test_data_without_clients_cannot_be_split_by_them(recipe: Any) -> None:
    whole = made_up()
    with pytest.raises(InvalidInput, match="people has no clients of its own: choose zipf"):
        split_dataset(recipe(), Dataset(whole.train, whole.test, 3))


def test_simulated_clients_share_all_but_the_servers_examples() -> None:
    generator = named_generator(0)
    images = torch.from_numpy(generator.integers(0, 255, (60, 1, 8, 8), dtype=np.uint8))
    dataset = Dataset(Examples(images, torch.arange(60) % 10), Examples(images[:20], torch.arange(20) % 10), 10)
    recipe = load_recipe("digits", {"data.validation_examples": 10, "data.calibration_examples": 10})
    split = split_dataset(recipe, dataset)
    held = np.concatenate([split.validation.places["train"], split.calibration["train"]])
    assert sorted([*split.pool.tolist(), *held.tolist()]) == list(range(60))
    assert list(split.tests) == [ALL]
    assert split.natural is None
