"""Rules of what a method plans and says of itself: nothing is trained for them."""

import tempfile
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.engines.graphs.blueprint import compact_layout
from fedfeast.federation import Assignment, Method
from fedfeast.networks import Network
from fedfeast.networks.built import BuiltNetwork
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.runs.checkpoint import CheckpointFolder, TrainingState
from fedfeast.runs.contract.trial import Trial

STEPS = 600  # over which passes are averaged
NEARBY = 0.1  # passes a step, between their mean and what is expected

Kinds = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # of constants, by name


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
    """Look at the passes of some steps of every participant."""
    method = trial.method
    # With other weights than the client's a network's cost is not that of its architecture.
    served = () if method.changes_weights else (point.architecture for point in method.operating_points())
    costs = {architecture: method.network.macs(architecture) for architecture in served}
    for round_index, assigned in trial.plans():
        for assignment in assigned:
            client, generator = assignment.client, named_generator(0, "passes", assignment.client.index)
            trained = {one.architecture for step in range(20) for one in method.passes(assignment, step, generator)}
            for architecture in trained.difference(assignment.architectures):
                yield (
                    f"passes() trains {architecture!r} on client {client.index}, which is none of its "
                    "assignment's architectures."
                )
            most = max([method.served_macs(assignment), *(costs.get(one, 0) for one in trained)])
            if method.keeps_budgets and most > client.budget_macs:
                yield (
                    f"client {client.index} with a budget of {client.budget_macs:.0f} MACs is made to train a network "
                    f"of {most} in round {round_index}: give it a smaller one, or let keeps_budgets say False."
                )


def assigns_everybody_once(trial: Trial) -> Iterator[str]:
    """Count the assignments of everybody who is asked, and look at their weights."""
    for round_index, assigned in trial.plans():
        asked = {client.index for client in trial.asked(round_index)}
        given = Counter(one.client.index for one in assigned)
        for index in sorted(asked | given.keys()):
            if given[index] != int(index in asked):
                yield (
                    f"plan_round() gives client {index} {given[index]} assignments in round {round_index}: give one to "
                    "each client of the cohort, and none to others."
                )
        for one in assigned:
            # The answer of a client without examples may weigh nothing.
            if not isfinite(one.weight) or one.weight < 0 or (one.client.num_examples and not one.weight):
                yield (
                    f"the answer of client {one.client.index} weighs {one.weight} in round {round_index}: give a "
                    "finite number above 0."
                )


def gives_constants_of_equal_shapes(trial: Trial) -> Iterator[str]:
    """Compare the constants of everybody in several rounds."""
    first: tuple[int, int, Kinds] | None = None
    for round_index, assigned in trial.plans():
        for one in assigned:
            here = {name: (tuple(value.shape), value.dtype) for name, value in one.constants.items()}
            first = first or (one.client.index, round_index, here)
            if here != first[2]:
                yield (
                    f"client {one.client.index} has the constants {_told(here)} in round {round_index}, and client "
                    f"{first[0]} {_told(first[2])} in round {first[1]}: give all clients the same names, shapes and "
                    "types in every round."
                )


def gives_the_same_for_the_same_budget(trial: Trial) -> Iterator[str]:
    """Plan for clients that are given the budgets of some others."""
    method, clients = trial.method, trial.cohort(trial.federation.participants)
    if method.plans_differ:
        return
    budgets = sorted(client.budget_macs for client in clients)
    for budget in sorted({budgets[0], budgets[len(budgets) // 2], budgets[-1]}):
        for round_index, assigned in trial.plans([replace(one, budget_macs=budget) for one in clients[:10]]):
            for one in assigned:
                kinds = [(each.architectures, each.slice_map.layout.shapes) for each in (assigned[0], one)]
                if kinds[0] != kinds[1]:
                    yield (
                        f"clients {assigned[0].client.index} and {one.client.index}, both with a budget of "
                        f"{budget:.0f} MACs, are given different networks in round {round_index}: choose by the budget "
                        "alone, or declare plans_differ = True in the class."
                    )


def looks_at_weights_where_said(trial: Trial) -> Iterator[str]:
    """Plan rounds with the weights and without any."""
    if trial.method.plans_by_weights:
        return  # a plan that could do without is slower, and right
    for (_, by_weights), (_, without) in zip(trial.plans(), trial.plans(flat=torch.empty(0)), strict=True):
        for one, blind in zip(by_weights, without, strict=True):
            alike = one.architectures == blind.architectures and one.weight == blind.weight
            if not alike or not torch.equal(one.slice_map.index(), blind.slice_map.index()):
                yield (
                    f"plan_round() gives client {blind.client.index} something else without the weights, although "
                    "plans_by_weights = False says that it does not look at them."
                )


def expects_the_mean_of_its_passes(trial: Trial) -> Iterator[str]:
    """Average the passes of many steps of some participants."""
    for _, assigned in trial.plans(trial.cohort(trial.federation.participants[::6])):
        for assignment in assigned:
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
    network = trial.method.network
    shapes_of = cache(network.shapes)
    for _, assigned in trial.plans():
        for assignment in assigned:
            sent = assignment.slice_map.layout.shapes
            for architecture in assignment.architectures:
                for name, shape in shapes_of(architecture).items():
                    given = sent.get(name)
                    if given is None or any(part > whole for part, whole in zip(shape, given, strict=True)):
                        yield (
                            f"client {assignment.client.index} may train {architecture!r}, whose {name} has the shape "
                            f"{shape}, and is sent {given}."
                        )


def lists_what_needs_most_room(trial: Trial) -> Iterator[str]:
    """Compare the networks that are trained with those that are listed."""
    if not trial.method.trained_architectures():
        yield "trained_architectures() lists none: list what training comes back to, the largest network at least."
        return
    for _, assigned in trial.plans():
        yield from without_room(trial.method, assigned)


def without_room(method: Method, assigned: Sequence[Assignment]) -> Iterator[str]:
    """Yield the networks that are trained and larger than all that are listed."""
    listed, network = method.trained_architectures(), method.network
    most = [max(sizes) for sizes in zip((0, 0), *(_room(network, one) for one in listed), strict=True)]
    seen = set(listed)
    for assignment in assigned:
        for architecture in method.expected_passes(assignment).keys() - seen:
            seen.add(architecture)
            if any(size > room for size, room in zip(_room(network, architecture), most, strict=True)):
                yield (
                    f"client {assignment.client.index} trains {architecture!r}, which trained_architectures() does "
                    "not list and which is larger than all that it lists: list it."
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
        wrong = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
        if wrong:
            yield f"the memory has {wrong[0]} = {state[wrong[0]]!r}, which is no tensor: give named tensors alone."
            return
        given, before = state, {name: value.clone() for name, value in state.items()}
        _, state = trial.plan(given, cohort, round_index)
        if given.keys() != before.keys() or not all(torch.equal(given[name], before[name]) for name in before):
            yield "plan_round() changes the memory that it is given: return another one, and leave that as it is."
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = CheckpointFolder(Path(folder) / "checkpoints")
        checkpoints.save(TrainingState(3, trial.initial_weights, state))
        loaded, _ = checkpoints.load_latest()
    kept = {} if loaded is None else loaded.method_state
    if kept.keys() != state.keys() or not all(torch.equal(kept[key], state[key]) for key in state):
        yield f"the memory {sorted(state)} is not what a checkpoint gives back: {sorted(kept)}."


def _told(kinds: Kinds) -> str:
    """Return the names, shapes and types of constants as words."""
    return ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in kinds.items()) or "none"


def _room(network: Network, architecture: Hashable) -> tuple[int, int]:
    """Return what the buffers of captured passes hold of a network: its convolutions, and all else."""
    layout, num_convolved = compact_layout(network.shapes(architecture))
    return num_convolved, layout.size - num_convolved
