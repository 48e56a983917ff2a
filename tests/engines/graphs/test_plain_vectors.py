import pytest
import torch
from tiny import TORN_SPACE

from fedfeast.engines.eager import sgd_step_
from fedfeast.engines.graphs.blueprint import active_positions, make_blueprint, passive_positions
from fedfeast.engines.graphs.gradient_plan import plan_gradients
from fedfeast.engines.graphs.plain_vectors import ClientVectors, PlainVectors
from fedfeast.federation import Accumulator, LocalSgd
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

CPU = torch.device("cpu")
NETWORK = ElasticResNet(TORN_SPACE)
PARTIAL = Architecture((1, 0), (0.5, 0.25), (0, 0, 1))
SLICES = LeadingSlices.of(NETWORK.layout, NETWORK.shapes(PARTIAL))
POSITIONS = SLICES.index().long()
BLUEPRINT = make_blueprint(NETWORK, PARTIAL, plan_gradients(NETWORK, PARTIAL, (16, 1, 32, 32)), 1, CPU)
ACTIVE = active_positions(NETWORK, [PARTIAL], 1, CPU)


def drawn(name: str, size: int = NETWORK.layout.size) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, name, size).normal(size=size))


@pytest.mark.parametrize("low_type", [torch.float64, torch.bfloat16])
def test_gathering_rounds_convolutions_alone(low_type: torch.dtype) -> None:
    source, size = drawn("source"), BLUEPRINT.index.numel()
    low = torch.zeros(size, dtype=low_type)
    full = torch.zeros(size, dtype=torch.float64)
    PlainVectors().gather(source, BLUEPRINT, low, full)
    expected = NETWORK.layout.views(source, BLUEPRINT.layout.shapes)
    for name, got in BLUEPRINT.weights(low, full).items():
        assert got.dtype == (low_type if got.dim() == 4 else torch.float64)
        assert torch.equal(got, expected[name].to(got.dtype)), name


def test_partial_gradients_add_up_at_their_positions() -> None:
    plan = BLUEPRINT.plan
    assert max(place.parts for place in plan.places.values()) > 1
    partials, before = drawn("partials", plan.size), drawn("gradient")
    gradient = before.clone()
    PlainVectors().add_gradients(gradient, partials, BLUEPRINT)
    expected = before.clone()
    for name, view in NETWORK.layout.views(expected, BLUEPRINT.layout.shapes).items():
        place, shape = plan.places[name], tuple(view.shape)
        whole = place.of(partials).view(place.parts, place.size).sum(0)
        view += whole.view(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2) if len(shape) == 4 else whole.view(shape)
    torch.testing.assert_close(gradient, expected)
    others = torch.ones_like(before, dtype=torch.bool)
    others[POSITIONS] = False
    assert torch.equal(gradient[others], before[others])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip_norm", [float("inf"), 0.5])
def test_a_step_is_the_eager_engines(clip_norm: float, momentum: float) -> None:
    weights, gradient, sgd = drawn("weights"), drawn("gradient"), LocalSgd(0.1, clip_norm, momentum)
    velocity = drawn("velocity") if momentum else None
    others = torch.ones_like(weights, dtype=torch.bool)
    others[POSITIONS] = False
    gradient[others] = 0
    expected, slope = SLICES.gather(weights), SLICES.gather(gradient)
    pushed = None if velocity is None else SLICES.gather(velocity)
    sgd_step_(expected, slope, sgd, 0.3, pushed)
    before = weights.clone()
    PlainVectors().step(ClientVectors(weights, gradient, velocity), ACTIVE, sgd, 0.3, None)
    torch.testing.assert_close(SLICES.gather(weights), expected, rtol=1e-12, atol=1e-14)
    if velocity is not None:
        torch.testing.assert_close(SLICES.gather(velocity), pushed, rtol=1e-12, atol=1e-14)
    assert not gradient.any(), "ready for the next step"
    assert torch.equal(weights[others], before[others])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_changes_only_the_ranges_it_is_given(momentum: float) -> None:
    weights, gradient, sgd = drawn("weights"), torch.zeros(NETWORK.layout.size).double(), LocalSgd(0.1, 1.0, momentum)
    velocity = drawn("velocity") if momentum else None
    third = len(ACTIVE) // 3
    inside = torch.zeros_like(weights, dtype=torch.bool)
    inside[ACTIVE[:third].long()] = True
    inside[ACTIVE[2 * third :].long()] = True
    before = weights.clone(), None if velocity is None else velocity.clone()
    ranges = [(0, third), (2 * third, len(ACTIVE))]
    PlainVectors().step(ClientVectors(weights, gradient, velocity), ACTIVE, sgd, 0.3, ranges)
    assert torch.equal(weights[~inside], before[0][~inside])
    assert (weights[inside] != before[0][inside]).all()
    if velocity is not None and before[1] is not None:
        assert torch.equal(velocity[~inside], before[1][~inside])


def test_accumulating_is_the_accumulators() -> None:
    answers, expected = Accumulator(NETWORK.layout.size), Accumulator(NETWORK.layout.size)
    for weight in (3.0, 5.0):
        source = drawn(f"source {weight}").float()
        PlainVectors().accumulate(answers.totals, source, ACTIVE, weight, 1.0)
        expected.add(SLICES, SLICES.gather(source), weight)
    torch.testing.assert_close(answers.totals, expected.totals, rtol=1e-14, atol=0)


def test_what_only_decays_is_accumulated_by_a_factor() -> None:
    envelope = LeadingSlices.of(NETWORK.layout, NETWORK.shapes(TORN_SPACE.largest))
    passive = passive_positions(envelope, ACTIVE, 1)
    source, answers, expected = drawn("source"), Accumulator(NETWORK.layout.size), Accumulator(NETWORK.layout.size)
    PlainVectors().accumulate(answers.totals, source, ACTIVE, 2.0, 1.0)
    PlainVectors().accumulate(answers.totals, source, passive, 2.0, 0.5)
    halved = 0.5 * source
    halved[POSITIONS] = source[POSITIONS]
    expected.add(envelope, envelope.gather(halved), 2.0)
    torch.testing.assert_close(answers.totals, expected.totals, rtol=1e-14, atol=0)
