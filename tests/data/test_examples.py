"""Examples, and how they are split between clients and server."""

import numpy as np
import pytest
import torch

from fedfeast.data import Examples, ShardedExamples, measure_normalisation, split_server_examples
from fedfeast.errors import InvalidInput
from fedfeast.population import Shards
from fedfeast.randomness import named_generator


def test_a_client_sees_its_own_shard() -> None:
    pool = Examples(torch.arange(5, dtype=torch.uint8).reshape(5, 1, 1, 1), torch.arange(5))
    sharded = ShardedExamples(pool, Shards(np.array([4, 0, 1, 2, 3]), np.array([0, 2, 5])))
    assert sharded.of_client(0).labels.tolist() == [4, 0]
    assert sharded.of_client(1).inputs.flatten().tolist() == [1, 2, 3]


def test_normalisation_is_the_mean_and_deviation_of_all_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=generator)
    measured = measure_normalisation(images)
    scaled = images.double() / 255
    np.testing.assert_allclose(measured.mean, scaled.mean((0, 2, 3)).numpy())
    np.testing.assert_allclose(measured.deviation, scaled.std((0, 2, 3), correction=0).numpy())


def test_a_constant_image_does_not_divide_by_zero() -> None:
    assert measure_normalisation(torch.zeros(2, 1, 2, 2, dtype=torch.uint8)).deviation[0] > 0


def test_the_papers_split_is_disjoint_and_balanced() -> None:
    labels = named_generator(0, "labels").permutation(np.repeat(np.arange(100), 500))
    split = split_server_examples(labels, 4000, 1000, named_generator(0, "split"))
    everything = np.concatenate([split.clients, split.validation, split.calibration])
    assert np.array_equal(np.sort(everything), np.arange(50_000))
    assert np.bincount(labels[split.validation]).tolist() == [40] * 100
    assert np.bincount(labels[split.calibration]).tolist() == [10] * 100
    assert np.bincount(labels[split.clients]).tolist() == [450] * 100


def test_uneven_numbers_differ_by_one_at_most() -> None:
    labels = np.repeat(np.arange(3), 10)
    split = split_server_examples(labels, 7, 4, named_generator(0))
    for part in (split.validation, split.calibration):
        counts = np.bincount(labels[part], minlength=3)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("validation", "calibration"), [(0, 5), (5, 0), (15, 15), (40, 1)])
def test_numbers_that_do_not_fit_are_refused(validation: int, calibration: int) -> None:
    with pytest.raises(InvalidInput, match="do not fit 30 training examples"):
        split_server_examples(np.repeat(np.arange(3), 10), validation, calibration, named_generator(0))


def test_a_server_with_examples_of_its_own_leaves_training_to_the_clients() -> None:
    labels, server_labels = np.repeat(np.arange(10), 90), np.repeat(np.arange(10), 60)
    split = split_server_examples(labels, 400, 100, named_generator(0), server_labels)
    assert np.array_equal(split.clients, np.arange(900))
    assert np.bincount(server_labels[split.validation]).tolist() == [40] * 10
    assert np.bincount(server_labels[split.calibration]).tolist() == [10] * 10
    assert not np.intersect1d(split.validation, split.calibration).size
    everything = split_server_examples(labels, 500, 100, named_generator(0), server_labels)
    assert len(everything.validation) + len(everything.calibration) == 600
    with pytest.raises(InvalidInput, match="do not fit 600 examples of the server"):
        split_server_examples(labels, 501, 100, named_generator(0), server_labels)
