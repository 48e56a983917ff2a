"""Rules of the global vector: nothing but a round changes it, and what is served is taken out of it."""

from collections.abc import Iterator

import torch

from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.runs.contract.trial import RATE, Trial


def leaves_the_vector_alone(trial: Trial) -> Iterator[str]:
    """Look at the vector after plans, a round and deployments from it."""
    before, federation = trial.initial_weights.clone(), trial.federation
    given = before.clone()
    for round_index, _ in trial.plans(trial.cohort(federation.participants[:3]), given):
        if not torch.equal(given, before):
            yield f"plan_round() of round {round_index} changes the global vector that it is given: work on a copy."
            return
    assigned = trial.assign((trial.least_client,), flat=given)
    federation.engine().run_round(RoundOrder(given, assigned, 0, RATE))
    if not torch.equal(given, before):
        yield "merge() changes the global vector that was sent: return another one."
        return
    for point in trial.some_points:
        trial.method.deploy(given, point)
        if not torch.equal(given, before):
            yield f"deploy() of {point.name} changes the global vector that it is given: work on a copy."
            return


def serves_what_was_trained(trial: Trial) -> Iterator[str]:
    """Deploy from two vectors."""
    method, first = trial.method, trial.initial_weights
    drawn = named_generator(trial.recipe.seed, "weights", "other").normal(size=len(first))
    other = torch.from_numpy(drawn).to(first)
    # One vector after the other: some methods sort a vector once for all that is taken out of it.
    deployed = {point.name: method.deploy(other, point) for point in trial.some_points}
    for point in trial.some_points:
        own = deployed[point.name]
        if not own.is_sliced:
            if torch.equal(own.flat, method.deploy(first, point).flat):
                yield f"deploy() of {point.name} gives the same weights whatever the global vector holds."
            continue
        slices = method.network.layout.views(other, own.layout.shapes)
        if not all(torch.equal(value, slices[name]) for name, value in own.weights.items()):
            yield (
                f"deploy() of {point.name} says that its tensors are leading slices of the global vector's, and holds "
                "other values: take them out of the vector, or leave is_sliced out."
            )
