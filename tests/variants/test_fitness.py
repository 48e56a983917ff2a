import ast
import csv
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, SearchSpace
from fedfeast.networks.cost import count_macs, count_parameters
from fedfeast.randomness import named_generator
from fedfeast.variants.fitness import Genes, Objective, decode, encode, num_choices, score

PAPER = SearchSpace()
SPACES = [
    PAPER,
    replace(PAPER, image_size=64, stem_stride=2, classes=200),
    SearchSpace(
        stem_channels=12,
        stage_channels=(20, 30, 25),
        depths=(1, 2, 5),
        expansions=(0.3, 0.5),
        widths=(0.4, 0.7, 1.0),
        stage_strides=(2, 1, 3),
        image_size=29,
        image_channels=1,
        classes=7,
        channel_divisor=3,
    ),
    SearchSpace(stage_channels=(16,), depths=(0,), expansions=(0.25,), widths=(1.0,), stage_strides=(1,)),
]


def random_genes(space: SearchSpace, count: int) -> Genes:
    choices = num_choices(space)
    return named_generator(0, "genes").integers(choices, size=(count, len(choices)))


@pytest.mark.parametrize("space", SPACES)
def test_costs_equal_the_closed_form(space: SearchSpace) -> None:
    genes = np.concatenate([random_genes(space, 300), encode(space, [space.smallest, space.largest])])
    scores = score(space, genes, Objective())
    architectures = [decode(space, row) for row in genes]
    assert scores.macs.tolist() == [count_macs(space, architecture) for architecture in architectures]
    assert scores.parameters.tolist() == [count_parameters(space, architecture) for architecture in architectures]


@pytest.mark.parametrize("space", SPACES)
def test_encode_is_the_inverse_of_decode(space: SearchSpace) -> None:
    genes = random_genes(space, 50)
    architectures = [decode(space, row) for row in genes]
    np.testing.assert_array_equal(encode(space, architectures), genes)
    for architecture in architectures:
        space.validate(architecture)


def test_encode_refuses_an_architecture_of_another_space() -> None:
    with pytest.raises(InvalidInput, match="not in the network's space"):
        encode(PAPER, [SPACES[2].smallest])


def test_the_shipped_scores_are_reproduced() -> None:
    text = resources.files("fedfeast.variants").joinpath("caches", "cifar100-56.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    choices = [[tuple(ast.literal_eval(row[column])) for column in ("d", "e", "w_indices")] for row in rows]
    scores = score(PAPER, encode(PAPER, [Architecture(*choice) for choice in choices]), Objective())
    assert len(rows) == 56
    for values, column, half_digit in (
        (scores.fitness, "fitness_score", 5.1e-4),
        (scores.effectiveness, "effectiveness", 5.1e-6),
        (scores.entropy, "entropy", 5.1e-4),
    ):
        np.testing.assert_allclose(values, [float(row[column]) for row in rows], rtol=0, atol=half_digit)


def plain_score(space: SearchSpace, architecture: Architecture, objective: Objective) -> tuple[float, float, float]:
    """Return fitness, effectiveness and entropy, convolution by convolution."""
    incoming = space.stem_width(architecture)
    widths, entropy = [9.0 * space.image_channels], 0.0
    for stage, depth in enumerate(architecture.depths):
        outgoing, middle = space.stage_width(architecture, stage), space.middle_width(architecture, stage)
        of_stage = [9.0 * incoming, 9.0 * middle, incoming, *(depth * [9.0 * outgoing, 9.0 * middle])]
        volume = space.feature_sizes()[stage + 1] ** 2 * outgoing
        weight = 1.0 if objective.stage_weights is None else objective.stage_weights[stage]
        entropy += weight * log(volume) * sum(map(log, of_stage))
        widths += of_stage
        incoming = outgoing
    effectiveness = len(widths) / exp(sum(map(log, widths)) / len(widths))
    outgoing_widths = [space.stage_width(architecture, stage) for stage in range(space.num_stages)]
    narrowing = sum(max(0, a - b) for a, b in pairwise(outgoing_widths))
    fitness = entropy - objective.depth_variance * exp(np.var(architecture.depths))
    return (
        fitness + objective.effectiveness * effectiveness - objective.monotonicity * narrowing,
        effectiveness,
        entropy,
    )


@pytest.mark.parametrize("space", SPACES)
def test_scores_equal_the_plain_formula(space: SearchSpace) -> None:
    weights = tuple(1.0 + stage for stage in range(space.num_stages))
    objective = Objective(depth_variance=3, effectiveness=70, monotonicity=2, stage_weights=weights)
    genes = random_genes(space, 40)
    scores = score(space, genes, objective)
    expected = [plain_score(space, decode(space, row), objective) for row in genes]
    np.testing.assert_allclose(np.stack([scores.fitness, scores.effectiveness, scores.entropy], axis=1), expected)


def test_narrowing_stages_cost_their_lost_channels() -> None:
    genes = encode(PAPER, [replace(PAPER.smallest, width_indices=(0, 9, 0, 0, 0))])
    strict, free = (score(PAPER, genes, Objective(monotonicity=value)).fitness[0] for value in (1.0, 0.0))
    assert free - strict == pytest.approx(128 - 24)


def test_the_greatest_effectiveness_leaves_the_fitness_alone() -> None:
    genes = random_genes(PAPER, 20)
    np.testing.assert_array_equal(
        score(PAPER, genes, Objective(greatest_effectiveness=0.01)).fitness, score(PAPER, genes, Objective()).fitness
    )


def test_a_huge_depth_variance_does_not_overflow() -> None:
    space = replace(PAPER, depths=(0, 100))
    genes = encode(space, [replace(space.smallest, depths=(0, 0, 100, 100))])
    assert np.isfinite(score(space, genes, Objective()).fitness[0])


def test_stage_weights_fit_the_stages() -> None:
    with pytest.raises(InvalidInput, match="stage_weights has 3 entries for 4 stages"):
        score(PAPER, random_genes(PAPER, 1), Objective(stage_weights=(1, 1, 8)))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_the_greatest_effectiveness_is_positive(value: float) -> None:
    with pytest.raises(InvalidInput, match=f"greatest_effectiveness = {value}: it must be above 0"):
        Objective(greatest_effectiveness=value)
