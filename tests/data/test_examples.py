import numpy as np
import torch

from fedfeast.data import Examples, ShardedExamples, measure_normalisation
from fedfeast.population import Shards


def test_a_client_sees_its_own_shard() -> None:
    pool = Examples(torch.arange(5, dtype=torch.uint8).reshape(5, 1, 1, 1), torch.arange(5))
    sharded = ShardedExamples(pool, Shards(np.array([4, 0, 1, 2, 3]), np.array([0, 2, 5])))
    assert sharded.of_client(0).labels.tolist() == [4, 0]
    assert sharded.of_client(1).images.flatten().tolist() == [1, 2, 3]


def test_normalisation_is_the_mean_and_deviation_of_all_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=generator)
    measured = measure_normalisation(images)
    scaled = images.double() / 255
    np.testing.assert_allclose(measured.mean, scaled.mean((0, 2, 3)).numpy())
    np.testing.assert_allclose(measured.deviation, scaled.std((0, 2, 3), correction=0).numpy())


def test_a_constant_image_does_not_divide_by_zero() -> None:
    assert measure_normalisation(torch.zeros(2, 1, 2, 2, dtype=torch.uint8)).deviation[0] > 0
