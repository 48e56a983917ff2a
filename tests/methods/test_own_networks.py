"""Methods on a network of one's own: which train it, which refuse it, and that a round is plain training."""

import numpy as np
import pytest
import torch
from own_networks import built_cnn
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, LocalSgd, Method, Parts
from fedfeast.federation.parts import ANY_NETWORK
from fedfeast.methods import METHODS, Nested
from fedfeast.methods.served_variants import EnvelopeRouting
from fedfeast.networks import ResNet
from fedfeast.networks.built.construction import FIXED_SEED, construct
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.variants import choose_members

NETWORK = built_cnn()
CACHE = choose_members(NETWORK, 5, named_generator(0))
PARTS = Parts(NETWORK, CACHE, None, rounds=3)
RICH, POOR = Client(0, "rich", 1e9, 8), Client(1, "poor", CACHE[1].macs, 4)


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.randint(0, 3, (4,), generator=generator) for _ in range(count)]
    images = [torch.randn(4, 1, 8, 8, generator=generator, dtype=torch.float64) for _ in range(count)]
    return [Batch(one, two, two, torch.tensor(1.0)) for one, two in zip(images, labels, strict=True)]


def assigned(method: Method, *clients: Client) -> list[Assignment]:
    flat = NETWORK.layout.zeros(torch.float64)
    return method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))[0]


@pytest.mark.parametrize("name", ANY_NETWORK)
def test_it_trains_and_serves_members(name: str) -> None:
    method = METHODS[name].build(PARTS)
    assert hash(method) == hash(METHODS[name].build(PARTS))
    flat = NETWORK.initial_weights(named_generator(0)).double()
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    (assignment,) = assigned(method, RICH)
    slot.load(assignment, assignment.slice_map.gather(flat))
    before = slot.weights.clone()
    train_client(method, assignment, slot, batches(2), LocalSgd(0.0, 10.0), 0.1, named_generator(1))
    assert bool((slot.weights != before).any())
    for point in method.operating_points():
        deployed = method.deploy(flat, point)
        assert (deployed.macs, deployed.flat.numel()) == (point.macs, point.parameters)
        assert deployed(torch.zeros(2, 1, 8, 8, dtype=torch.float64), by_batch).shape == (2, 3)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - set(ANY_NETWORK)))
@pytest.mark.parametrize("resnet", [None, ResNet()], ids=["alone", "beside the ResNet"])
def test_the_others_refuse_it_and_say_which_do(name: str, resnet: ResNet | None) -> None:
    with pytest.raises(InvalidInput, match=rf"'{name}' .*choose feast, nested, fedsup, efedsup, deepfednas or fedavg"):
        METHODS[name].build(Parts(NETWORK, CACHE, resnet, rounds=3))


def test_a_client_receives_the_envelope_of_what_it_affords() -> None:
    method = METHODS["feast"].build(PARTS)
    assert isinstance(method, EnvelopeRouting)
    rich, poor = assigned(method, RICH, POOR)
    assert rich.slice_map.payload == NETWORK.layout.num_parameters
    envelope = NETWORK.envelope([one.architecture for one in CACHE.variants[:2]])
    assert poor.slice_map.layout.shapes == NETWORK.shapes(envelope)
    assert poor.architectures == tuple(one.architecture for one in CACHE.variants[:2])


def test_one_step_is_a_step_of_plain_training() -> None:
    method = METHODS["fedavg"].build(PARTS, max_macs=1e9)
    (assignment,) = assigned(method, RICH)
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    flat = NETWORK.initial_weights(named_generator(0)).double()
    slot.load(assignment, assignment.slice_map.gather(flat))
    module = construct(NETWORK.builder, NETWORK.largest, NETWORK.known, FIXED_SEED).double()
    module.load_state_dict(NETWORK.layout.views(flat), strict=False)
    steps = batches(3)
    train_client(method, assignment, slot, steps, LocalSgd(0.0, 1e9), 0.1, named_generator(1))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for batch in steps:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(batch.inputs), batch.labels_a).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for name, view in slot.layout.views(slot.weights).items():
        torch.testing.assert_close(view, module.get_parameter(name).detach(), rtol=0, atol=1e-12, msg=name)


def trained_by(method: Nested, generator: np.random.Generator) -> list[tuple[str, object]]:
    (assignment,) = assigned(method, RICH)
    return [(one.role, one.architecture) for one in method.passes(assignment, 0, generator)]


def test_nested_sampling_draws_every_affordable_variant() -> None:
    method, generator = Nested(NETWORK, CACHE), named_generator(0)
    drawn = [trained_by(method, generator) for _ in range(100)]
    assert {one[0][1] for one in drawn} == {one.architecture for one in CACHE}
    (assignment,) = assigned(method, RICH)
    assert sum(method.expected_passes(assignment).values()) == pytest.approx(1.0)
    taught = Nested(NETWORK, CACHE, distillation=True)
    assert [role for role, _ in trained_by(taught, generator)] == ["teacher", "student"]
    assert sum(taught.expected_passes(assignment).values()) == pytest.approx(2.0)


def test_a_student_learns_from_its_teacher_alone() -> None:
    method, (batch,) = Nested(NETWORK, CACHE, distillation=True), batches(1)
    logits: Tensor = torch.randn(4, 3, dtype=torch.float64)
    loss, soft = method.loss("teacher", (logits,), batch, None, {})
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, batch.labels_a))
    assert soft is not None
    student, _ = method.loss("student", (logits,), batch, soft, {})
    torch.testing.assert_close(student, -(soft * logits.log_softmax(dim=1)).sum(dim=1).mean())
