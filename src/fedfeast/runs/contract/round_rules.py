"""Rules of what rounds do to the global vector: a few clients are trained for them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from fedfeast.data import Batch, draw_local_plan, make_batches
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.eager import ClientSlot, train_client, with_prior
from fedfeast.federation import Assignment, Constants, LocalSgd, Merged, RoundOrder, ServerOptimiser
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_sgd
from fedfeast.runs.contract.plan_rules import without_room
from fedfeast.runs.contract.trial import RATE, Trial, routed

MOST_APART = 1e-6  # of a round's change, between the engines in float64
SAME_LOSS = 1e-6  # of a loss, between rounds


def repeats_itself(trial: Trial) -> Iterator[str]:
    """Train two rounds twice, and once more with another seed."""
    first = trial.after_two_rounds()
    if not torch.equal(first, trial.after_two_rounds()):
        yield (
            "two rounds with the same seed end in different weights: draw by the generator that is given, and keep "
            "nothing in the object."
        )
    if torch.equal(first, trial.with_seed(trial.recipe.seed + 1).after_two_rounds()):
        yield "two rounds end in the same weights whatever the seed: nothing seems to be trained."


def leaves_alone_what_was_not_sent(trial: Trial) -> Iterator[str]:
    """Train the client with the smallest budget."""
    assigned, before = trial.assign((trial.least_client,)), trial.initial_weights
    after = trial.federation.engine().run_round(RoundOrder(before.clone(), assigned, 0, RATE)).flat
    sent = routed(assigned, before.numel())
    if not torch.equal(after[~sent], before[~sent]):
        changed = int((after != before)[~sent].sum())
        yield f"a round changes {changed} weights that no client was sent: merge() must keep them bit for bit."
    if torch.equal(after[sent], before[sent]):
        yield "a round changes none of the weights that a client was sent."


def steps_only_where_answered(trial: Trial) -> Iterator[str]:
    """Let servers step that look ahead or have an optimiser of their own."""
    method, federation = trial.method, trial.federation
    cohorts = [trial.cohort(one) for one in (federation.participants[-1:], *2 * [(trial.least_client,)])]
    for common in (ServerOptimiser(lookahead=0.8), ServerOptimiser("adam")):
        server, flat = method.server_optimiser(common), trial.initial_weights.clone()
        state, memory, engine = server.initial_state(flat), method.initial_state(), federation.engine()
        for round_index, cohort in enumerate(cohorts):
            sent = server.sent(state, flat)
            assigned, memory = trial.plan(memory, cohort, round_index, sent)
            result = engine.run_round(RoundOrder(sent, assigned, round_index, RATE))
            before, (flat, state) = flat, server.server_step(state, flat, Merged(sent, result.flat, result.answered))
            answered = result.answered
            if bool((answered & ~routed(assigned, flat.numel())).any()):
                yield "an answer counts at positions that its client was not sent: see counted()."
            if not torch.equal(flat[~answered], before[~answered]):
                yield f"the server's step ({common}) moves positions that nobody answered."
            if torch.equal(flat[answered], before[answered]) or not bool(torch.isfinite(flat).all()):
                yield f"the server's step ({common}) moves nothing, or to weights that are not finite."


def takes_a_single_answer_as_it_is(trial: Trial) -> Iterator[str]:
    """Train one client in a round and by itself."""
    method, federation = trial.method, trial.federation
    (assignment,) = trial.assign(federation.participants[-1:])
    flat, slices = trial.initial_weights, assignment.slice_map
    merged = federation.engine().run_round(RoundOrder(flat.clone(), [assignment], 0, RATE)).flat
    slot, batches, generator = _at_work(trial, assignment)
    train_client(method, assignment, slot, batches, build_sgd(trial.recipe, method), RATE, generator)
    counted = method.counted(assignment, slices.gather(flat), slot.weights)
    expected = slot.weights if counted is None else torch.where(counted, slot.weights, slices.gather(flat))
    if not torch.equal(merged[slices.index().long()], slices.pack(expected)):
        yield (
            "a round with one client does not end in what that client answers: merge() changes it, or training "
            "depends on more than the assignment."
        )


def computes_losses_from_tensors(trial: Trial) -> Iterator[str]:
    """Compute a step's losses from tensors that have shapes and no values, as a capture sees them."""
    for assignment in trial.assign(trial.federation.participants[:3]):
        step, fake, carried = _first_step(trial, assignment), FakeTensorMode(allow_non_fake_inputs=True), None
        constants = {name: fake.from_tensor(one) for name, one in step.constants.items()}
        for role, outputs, batch in step.passes:
            blank, blank_batch = tuple(map(fake.from_tensor, outputs)), _without_values(fake, batch)
            try:
                with fake:
                    _, carried = trial.method.loss(role, blank, blank_batch, carried, constants)
            except (DataDependentOutputException, DynamicOutputShapeException) as error:
                yield (
                    f"loss() of the role {role!r} looks at a tensor's values ({error}), which a captured loss "
                    "would keep from its first batch: compute with tensors, without float(), item(), if or masks."
                )


def computes_the_same_loss_in_every_round(trial: Trial) -> Iterator[str]:
    """Compute a step's losses from the same tensors and constants after the plans of several rounds."""
    first: list[dict[str, float]] = []
    steps: list[_Step] = []
    for round_index, assigned in trial.plans(trial.cohort(trial.federation.participants[:3])):
        steps = steps or [_first_step(trial, one) for one in assigned]
        found = [_losses(trial, step) for step in steps]
        first = first or found
        for before, now in zip(first, found, strict=True):
            for role, value in before.items():
                if abs(now[role] - value) > SAME_LOSS * abs(value):
                    yield (
                        f"loss() of the role {role!r} gives {value:.6g} in round 0 and {now[role]:.6g} in round "
                        f"{round_index} for the same outputs, batch and constants: put what differs between rounds "
                        "into constants, since a captured loss is replayed."
                    )


def is_the_same_when_captured(trial: Trial) -> Iterator[str]:
    """Run a round by both engines in float64, as by default and with momentum, short batches and kept tensors."""
    method, federation, training = trial.method, trial.federation, trial.recipe.training
    whole, plain = torch.float64, LocalSgd(training.weight_decay, training.clip_norm)
    kinds = (
        (plain, federation.preparation),
        (replace(plain, momentum=0.9, unreached="keep"), replace(federation.preparation, last_batch="short")),
    )
    assigned, flat = trial.assign(federation.participants[:3]), trial.initial_weights.double()
    if any(without_room(method, assigned)):
        yield "captured passes have no room for a network that trained_architectures() does not list: list it."
        return
    for common, preparation in kinds:
        parts = (method, federation.examples, preparation, method.optimiser(common), trial.recipe.seed)
        order = RoundOrder(flat, assigned, 0, RATE)
        eager = EagerEngine(*parts, whole, federation.device).run_round(order)
        graphs = GraphEngine(*parts, Precision(whole, whole), federation.device).run_round(order)
        apart = float((graphs.flat - eager.flat).norm() / (eager.flat - flat).norm())
        losses = eager.losses.keys() == graphs.losses.keys() and all(
            abs(graphs.losses[role] - value) <= MOST_APART * abs(value) for role, value in eager.losses.items()
        )
        if not apart < MOST_APART or graphs.num_steps != eager.num_steps or not losses:
            yield (
                f"captured passes and plain ones differ by {apart:.1e} of a round's change: choose in plan_round() and "
                "passes() alone, and put what differs between clients or rounds into constants."
            )


@dataclass(frozen=True, eq=False)
class _Step:
    """What the losses of a client's first step are computed from."""

    constants: Constants
    passes: list[tuple[str, tuple[Tensor, ...], Batch]]  # roles, outputs and examples, in order


def _first_step(trial: Trial, assignment: Assignment) -> _Step:
    """Run the forward passes of a client's first step."""
    network, (slot, batches, generator), passes = trial.method.network, _at_work(trial, assignment), []
    batch = next(batches)
    slot.begin_step()
    for one in trial.method.passes(assignment, 0, generator):
        given = batch if one.part == 1 else batch.leading(one.rows(len(batch.inputs)))
        weights = slot.leaves(one.architecture).weights
        with torch.no_grad():
            passes.append((one.role, network.forward(weights, given.inputs, one.architecture, by_batch), given))
    return _Step(slot.constants, passes)


def _losses(trial: Trial, step: _Step) -> dict[str, float]:
    """Return the losses of a step's passes, added up by role."""
    losses, carried = Counter[str](), None
    with torch.no_grad():
        for role, outputs, batch in step.passes:
            loss, carried = trial.method.loss(role, outputs, batch, carried, step.constants)
            losses[role] += float(loss)  # type: ignore[assignment]
    return dict(losses)


def _at_work(trial: Trial, assignment: Assignment) -> tuple[ClientSlot, Iterator[Batch], np.random.Generator]:
    """Return a client's weights, its batches and its generator, as the eager engine would begin with them."""
    federation, client = trial.federation, assignment.client.index
    generator = named_generator(trial.recipe.seed, "round", 0, "client", client)
    examples, preparation = federation.examples.of_client(client), federation.preparation
    plan = draw_local_plan(len(examples), examples.shape, preparation, 0, generator)
    slot = ClientSlot(trial.method, federation.dtype, federation.device)
    received = assignment.slice_map.gather(trial.initial_weights)
    slot.load(with_prior(assignment, examples.labels, preparation, federation.dtype), received)
    return slot, make_batches(examples, plan, preparation, federation.dtype), generator


def _without_values(fake: FakeTensorMode, batch: Batch) -> Batch:
    values = {one.name: getattr(batch, one.name) for one in fields(batch)}
    blank: dict[str, Any] = {name: fake.from_tensor(one) for name, one in values.items() if isinstance(one, Tensor)}
    return replace(batch, **blank)
