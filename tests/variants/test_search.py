import csv
from dataclasses import replace
from importlib import resources
from itertools import product

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.networks import SearchSpace
from fedfeast.networks.cost import count_macs, count_parameters
from fedfeast.randomness import named_generator
from fedfeast.variants.fitness import Genes, Objective, Values, encode, num_choices, score
from fedfeast.variants.search import Found, SearchSettings, dominated, repeated, search_cache, search_one

PAPER = SearchSpace()
TINY = SearchSpace(
    stem_channels=16,
    stage_channels=(32, 64, 64),
    depths=(0, 1, 3),
    expansions=(0.25, 0.5),
    widths=(0.25, 0.5, 0.75, 1.0),
    stage_strides=(1, 2, 2),
    image_size=16,
    classes=10,
)
QUICK = SearchSettings(population=8, generations=5, restarts=2)


def every_candidate(space: SearchSpace) -> Genes:
    return np.array(list(product(*map(range, num_choices(space)))))


def generator(seed: int = 0) -> np.random.Generator:
    return named_generator(seed, "search")


@pytest.mark.parametrize("greatest_effectiveness", [0.51, 0.2, 0.12])
def test_the_optimum_of_a_tiny_space_is_found(greatest_effectiveness: float) -> None:
    objective = Objective(greatest_effectiveness=greatest_effectiveness)
    scores = score(TINY, every_candidate(TINY), objective)
    within = scores.effectiveness <= greatest_effectiveness
    targets = np.linspace(scores.macs[within].min(), scores.macs.max(), 12).tolist()
    found = search_cache(TINY, targets, generator(), objective=objective)
    for target, one in zip(targets, found, strict=True):
        assert one.fitness == scores.fitness[within & (scores.macs <= target)].max()
        assert one.macs <= target
        assert one.effectiveness <= greatest_effectiveness


def test_the_optimum_with_a_penalty_and_a_second_limit() -> None:
    def penalty(genes: Genes) -> Values:
        return np.asarray(200.0 * (genes[:, 0] != 1) + 3.0 * genes[:, -1])

    genes = every_candidate(TINY)
    scores = score(TINY, genes, Objective())
    for max_macs, max_parameters in ((1e6, 20_000), (2e6, 15_000), (4e6, 10**9)):
        one = search_one(TINY, max_macs, generator(), extra_penalty=penalty, max_parameters=max_parameters)
        within = (scores.macs <= max_macs) & (scores.parameters <= max_parameters) & (scores.effectiveness <= 0.51)
        place = encode(TINY, [one.architecture])
        assert one.fitness - penalty(place)[0] == (scores.fitness - penalty(genes))[within].max()
        assert one.fitness == score(TINY, place, Objective()).fitness[0]
        assert one.macs <= max_macs
        assert one.parameters <= max_parameters


def test_the_paper_targets_reach_the_shipped_fitness() -> None:
    text = resources.files("fedfeast.variants").joinpath("caches", "cifar100-56.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    targets = [int(row["target"]) for row in rows]
    reported: list[Found] = []
    found = search_cache(PAPER, targets, generator(), on_target=reported.append)
    assert [one.target_macs for one in found] == [one.target_macs for one in reported] == targets
    for row, one in zip(rows, found, strict=True):
        assert one.fitness >= 0.99 * float(row["fitness_score"])
        assert one.macs == count_macs(PAPER, one.architecture) <= one.target_macs
        assert one.parameters == count_parameters(PAPER, one.architecture)
        assert one.effectiveness <= 0.51
    fitness = [one.fitness for one in found]
    assert fitness == sorted(fitness)
    assert dominated(found) == repeated(found)


def test_the_same_seed_gives_the_same_cache() -> None:
    targets = [60e6, 30e6, 200e6]
    first, again = (search_cache(PAPER, targets, generator(1), QUICK) for _ in range(2))
    assert first == again
    assert [one.target_macs for one in first] == targets


def test_an_exact_target_is_met_and_equal_channels_have_one_name() -> None:
    least = count_macs(PAPER, PAPER.smallest)
    assert search_one(PAPER, least, generator(), QUICK).architecture == PAPER.smallest
    # A width of .3 and of .4 both give the stem 24 channels.
    space = replace(PAPER, widths=(0.3, 0.4))
    assert search_one(space, np.inf, generator(), QUICK).architecture.width_indices[0] == 0


def test_the_least_effort_keeps_the_limit() -> None:
    one = search_one(PAPER, 50e6, generator(), SearchSettings(population=1, generations=1, restarts=1))
    assert one.macs <= 50e6


def test_the_smallest_space_has_one_answer() -> None:
    space = SearchSpace(stage_channels=(64,), depths=(0,), expansions=(0.25,), widths=(1.0,), stage_strides=(1,))
    (one,) = search_cache(space, [1e9], generator(), QUICK)
    assert one.architecture == space.smallest


def test_invalid_targets() -> None:
    least, least_parameters = count_macs(PAPER, PAPER.smallest), count_parameters(PAPER, PAPER.smallest)
    with pytest.raises(InvalidInput, match="at least one target"):
        search_cache(PAPER, [], generator())
    for target in (least - 1, -5, float("nan")):
        with pytest.raises(InvalidInput, match=f"MACs is below the least network of the space, which has {least}"):
            search_cache(PAPER, [10**9, target], generator())
    with pytest.raises(InvalidInput, match=f"7 parameters is below .* which has {least_parameters}"):
        search_one(PAPER, 10**9, generator(), max_parameters=7)
    with pytest.raises(InvalidInput, match=r"found within 30000000 MACs whose effectiveness is at most 0\.01: raise"):
        search_cache(PAPER, [3e7], generator(), QUICK, Objective(greatest_effectiveness=0.01))


@pytest.mark.parametrize("name", ["population", "generations", "restarts"])
def test_invalid_settings(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"search {name} = 0: it must be at least 1"):
        SearchSettings(**{name: 0})


def test_dominated_and_repeated() -> None:
    def one(macs: int, fitness: float, width_index: int) -> Found:
        architecture = replace(PAPER.smallest, width_indices=(width_index, 0, 0, 0, 0))
        return Found(100, architecture, macs, 1, fitness, 0.1, 1.0)

    assert dominated([one(1, 1, 0), one(2, 2, 1), one(3, 3, 2)]) == []
    assert dominated([one(3, 1, 0), one(1, 1, 1), one(2, 2, 2)]) == [0]
    assert dominated([one(1, 1, 0), one(1, 1, 1), one(1, 2, 2), one(2, 2, 3)]) == [0, 1, 3]
    assert dominated([one(1, 1, 0), one(1, 1, 0)]) == repeated([one(1, 1, 0), one(1, 1, 0)]) == [1]
    assert repeated([one(1, 1, 0), one(2, 2, 1), one(3, 1, 0), one(4, 4, 1)]) == [2, 3]
    assert dominated([]) == repeated([]) == []
