"""Eq. 7 as a slow loop over clients and positions, against the streaming accumulator."""

import torch

from fedfeast.federation import Accumulator
from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

SPACE = SearchSpace(
    stem_channels=8,
    stage_channels=(16, 16),
    depths=(0, 1),
    expansions=(0.25,),
    widths=(0.5, 1.0),
    stage_strides=(1, 2),
    image_size=8,
    image_channels=1,
    classes=3,
)


def loop_over_positions(previous: list[float], answers: list[tuple[list[int], list[float], int]]) -> list[float]:
    merged = []
    for position, old in enumerate(previous):
        total, weight = 0.0, 0
        for index, values, num_examples in answers:
            if position in index:
                total += num_examples * values[index.index(position)]
                weight += num_examples
        merged.append(total / weight if weight else old)
    return merged


def test_the_accumulator_equals_a_loop_over_positions() -> None:
    network = ElasticResNet(SPACE)
    generator = named_generator(0, "reference")
    previous = network.initial_weights(generator)
    envelopes = [
        SPACE.envelope((0, 0), (0, 0, 0)),
        SPACE.envelope((1, 0), (1, 0, 0)),
        SPACE.envelope((0, 1), (0, 0, 1)),
        Architecture((0, 0), (0.25, 0.25), (0, 1, 0)),
    ]
    accumulator = Accumulator(previous.numel())
    answers = []
    for num_examples, envelope in zip((3, 11, 7, 2), envelopes, strict=True):
        slices = LeadingSlices.of(network.layout, network.shapes(envelope))
        values = torch.from_numpy(generator.normal(size=slices.payload)).float()
        accumulator.add(slices, values, num_examples)
        answers.append((slices.index().tolist(), values.tolist(), num_examples))
    merged = accumulator.merged_with(previous)
    expected = torch.tensor(loop_over_positions(previous.tolist(), answers), dtype=torch.float64).float()
    torch.testing.assert_close(merged, expected, rtol=1e-7, atol=0)
    untouched = accumulator.weights == 0
    assert 0 < int(untouched.sum()) < previous.numel()
    assert torch.equal(merged[untouched], previous[untouched])
