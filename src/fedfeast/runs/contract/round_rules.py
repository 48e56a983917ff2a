"""Rules of what rounds do to the global vector: a few clients are trained for them."""

from collections.abc import Iterator
from dataclasses import fields, replace
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
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.federation import Assignment, LocalSgd, Merged, RoundOrder, ServerOptimiser
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_sgd
from fedfeast.runs.contract.trial import RATE, Trial, routed

MOST_APART = 1e-6  # of a round's change, between the engines in float64


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
    cohorts = (federation.participants[-1:], (trial.least_client,), (trial.least_client,))
    for common in (ServerOptimiser(lookahead=0.8), ServerOptimiser("adam")):
        server, flat = method.server_optimiser(common), trial.initial_weights.clone()
        state, engine = server.initial_state(flat), federation.engine()
        for round_index, cohort in enumerate(cohorts):
            sent = server.sent(state, flat)
            assigned = trial.assign(cohort, round_index, sent)
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
    method, network = trial.method, trial.method.network
    for assignment in trial.assign(trial.federation.participants[:3]):
        slot, batches, generator = _at_work(trial, assignment)
        batch, fake, carried = next(batches), FakeTensorMode(allow_non_fake_inputs=True), None
        slot.begin_step()
        constants = {name: fake.from_tensor(one) for name, one in slot.constants.items()}
        for one in method.passes(assignment, 0, generator):
            given = batch if one.part == 1 else batch.leading(one.rows(len(batch.inputs)))
            weights = slot.leaves(one.architecture).weights
            with torch.no_grad():
                outputs = network.forward(weights, given.inputs, one.architecture, by_batch)
            blank, blank_batch = tuple(map(fake.from_tensor, outputs)), _without_values(fake, given)
            try:
                with fake:
                    _, carried = method.loss(one.role, blank, blank_batch, carried, constants)
            except (DataDependentOutputException, DynamicOutputShapeException) as error:
                yield (
                    f"loss() of the role {one.role!r} looks at a tensor's values ({error}), which a captured loss "
                    "would keep from its first batch: compute with tensors, without float(), item(), if or masks."
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


def _at_work(trial: Trial, assignment: Assignment) -> tuple[ClientSlot, Iterator[Batch], np.random.Generator]:
    """Return a client's weights, its batches and its generator, as the eager engine would begin with them."""
    federation, client = trial.federation, assignment.client.index
    generator = named_generator(trial.recipe.seed, "round", 0, "client", client)
    examples = federation.examples.of_client(client)
    plan = draw_local_plan(len(examples), examples.shape, federation.preparation, 0, generator)
    slot = ClientSlot(trial.method, federation.dtype, federation.device)
    slot.load(assignment, assignment.slice_map.gather(trial.initial_weights))
    return slot, make_batches(examples, plan, federation.preparation, federation.dtype), generator


def _without_values(fake: FakeTensorMode, batch: Batch) -> Batch:
    values = {one.name: getattr(batch, one.name) for one in fields(batch)}
    blank: dict[str, Any] = {name: fake.from_tensor(one) for name, one in values.items() if isinstance(one, Tensor)}
    return replace(batch, **blank)
