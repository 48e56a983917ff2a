"""Rules of what a method plans and says of itself: nothing is trained for them."""

import tempfile
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.networks.built import BuiltNetwork
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.runs.checkpoint import CheckpointFolder, TrainingState
from fedfeast.runs.contract.trial import Trial

STEPS = 600  # over which passes are averaged
NEARBY = 0.1  # passes a step, between their mean and what is expected


def is_frozen(trial: Trial) -> Iterator[str]:
    """Look whether the method can be changed, and whether it can be a key."""
    method = trial.method
    name = type(method).__name__
    if not is_dataclass(method):
        yield f"{name} is no dataclass: put @dataclass(frozen=True) above the class."
        return
    field = fields(method)[-1].name
    try:
        setattr(method, field, getattr(method, field))
        yield f"{name}.{field} can be set: put @dataclass(frozen=True) above the class."
    except FrozenInstanceError:
        pass
    try:
        hash(method)
    except TypeError as error:
        yield f"{name} has no hash ({error}): give fields of tuples and numbers instead of lists, dicts and arrays."


def keeps_to_budgets(trial: Trial) -> Iterator[str]:
    """Look at the passes of twenty steps of every participant."""
    method = trial.method
    for assignment in trial.assign(trial.federation.participants):
        client, generator = assignment.client, named_generator(0, "passes", assignment.client.index)
        for step in range(20):
            for one in method.passes(assignment, step, generator):
                if one.architecture not in assignment.architectures:
                    yield (
                        f"passes() trains {one.architecture!r} on client {client.index}, which is none of its "
                        "assignment's architectures."
                    )
        served = method.served_macs(assignment)
        if method.keeps_budgets and served > client.budget_macs:
            yield (
                f"client {client.index} with a budget of {client.budget_macs:.0f} MACs is made to train a network of "
                f"{served}: give it a smaller one, or let keeps_budgets say False."
            )


def looks_at_weights_where_said(trial: Trial) -> Iterator[str]:
    """Plan a round with the weights and without any."""
    everybody, nothing = trial.federation.participants, torch.empty(0)
    if trial.method.plans_by_weights:
        return  # a plan that could do without is slower, and right
    pairs = zip(trial.assign(everybody), trial.assign(everybody, flat=nothing), strict=True)
    for by_weights, without in pairs:
        alike = by_weights.architectures == without.architectures and by_weights.weight == without.weight
        if not alike or not torch.equal(by_weights.slice_map.index(), without.slice_map.index()):
            yield (
                f"plan_round() gives client {without.client.index} something else without the weights, although "
                "plans_by_weights = False says that it does not look at them."
            )


def expects_the_mean_of_its_passes(trial: Trial) -> Iterator[str]:
    """Average the passes of many steps of some participants."""
    for assignment in trial.assign(trial.federation.participants[::6]):
        generator = named_generator(0, "passes", assignment.client.index)
        drawn: Counter[Hashable] = Counter()
        for step in range(STEPS):
            for one in trial.method.passes(assignment, step, generator):
                drawn[one.architecture] += one.part  # type: ignore[assignment]
        expected = trial.method.expected_passes(assignment)
        for architecture in {**drawn, **expected}:
            found, told = drawn[architecture] / STEPS, expected.get(architecture)
            if told is None or architecture not in drawn or abs(found - told) >= NEARBY:
                yield (
                    f"expected_passes() says {told} passes a step through {architecture!r} on client "
                    f"{assignment.client.index}, and passes() gives {found:.2f} on average."
                )


def leaves_out_who_affords_nothing(trial: Trial) -> Iterator[str]:
    """Compare trains() with the least price."""
    method, federation = trial.method, trial.federation
    least = method.operating_points()[0].price
    if not method.trains(float(least)):
        yield f"trains({least}) is False, although that is the price of the smallest operating point."
    if method.keeps_budgets and method.trains(float(least - 1)):
        yield f"trains({least - 1}) is True, although the smallest operating point costs {least} MACs."
    for index in federation.participants:
        if federation.clients[index].budget_macs < least:
            yield f"client {index} takes part and affords no operating point."


def sends_what_is_trained(trial: Trial) -> Iterator[str]:
    """Compare the shapes of what may be trained with those of what is sent."""
    for assignment in trial.assign(trial.federation.participants):
        sent = assignment.slice_map.layout.shapes
        for architecture in assignment.architectures:
            for name, shape in trial.method.network.shapes(architecture).items():
                given = sent.get(name)
                if given is None or any(part > whole for part, whole in zip(shape, given, strict=True)):
                    yield (
                        f"client {assignment.client.index} may train {architecture!r}, whose {name} has the shape "
                        f"{shape}, and is sent {given}."
                    )


def stands_for_all_rounds(trial: Trial) -> Iterator[str]:
    """Add the shares of rounds up."""
    shares = trial.method.rounds_alike()
    if abs(sum(shares.values()) - 1) > 1e-9:
        yield f"rounds_alike() gives shares that add up to {sum(shares.values()):g} and not to 1."


def declares_its_cost(trial: Trial) -> Iterator[str]:
    """Count what every deployed operating point multiplies."""
    method, points = trial.method, trial.method.operating_points()
    prices = [point.price for point in points]
    if prices != sorted(prices) or len({point.name for point in points}) < len(points):
        yield f"operating_points() are not in the order of their prices ({prices}), or share names."
    inputs = trial.federation.test.test.inputs[:2]
    classes = trial.recipe.data.facts.classes
    for point in points:
        deployed = method.deploy(trial.initial_weights, point)
        if method.keeps_budgets and deployed.macs > point.macs:
            yield f"deploy() of {point.name} costs {deployed.macs} MACs, more than the point's {point.macs}."
        if method.changes_weights or isinstance(method.network, BuiltNetwork):
            continue  # zeros stand in place of weights; or the package counts what a constructor made
        if not deployed.flat.numel() == deployed.parameters == point.parameters:
            yield (
                f"{point.name} declares {point.parameters} parameters, its deployed network {deployed.parameters} and "
                f"holds {deployed.flat.numel()}."
            )
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            outputs = deployed(inputs.to(deployed.flat.dtype), by_batch)
        counted = counter.get_total_flops() / 2 / len(inputs)
        if not counted == deployed.macs == point.macs:
            told = f"{point.macs} MACs, its deployed network {deployed.macs}"
            yield f"{point.name} declares {told} and does {counted:.0f}."
        if tuple(outputs.shape) != (len(inputs), classes):
            yield f"{point.name} gives outputs of the shape {tuple(outputs.shape)} and not {(len(inputs), classes)}."


def remembers_by_named_tensors(trial: Trial) -> Iterator[str]:
    """Save the memory after three plans and load it."""
    method, cohort = trial.method, trial.cohort(trial.federation.participants[:4])
    state = method.initial_state()
    for round_index in range(3):
        generator = named_generator(0, "plan", round_index)
        _, state = method.plan_round(state, trial.initial_weights, cohort, round_index, generator)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = CheckpointFolder(Path(folder) / "checkpoints")
        checkpoints.save(TrainingState(3, trial.initial_weights, state))
        loaded, _ = checkpoints.load_latest()
    kept = {} if loaded is None else loaded.method_state
    if kept.keys() != state.keys() or not all(torch.equal(kept[key], state[key]) for key in state):
        yield f"the memory {sorted(state)} is not what a checkpoint gives back: {sorted(kept)}."
