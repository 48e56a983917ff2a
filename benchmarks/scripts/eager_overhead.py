"""The eager engine's round against a bare PyTorch loop that does the same passes on the same batches.

The bare loop has one plain nn.Module per variant, torch.optim.SGD and clip_grad_norm_, and no server at all: no
routing, no slices, no aggregation. Both are timed by turns in one process; the figure is the ratio of the medians.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Hashable

import torch
from torch import nn

from fedfeast.data import draw_local_plan, make_batches
from fedfeast.federation import Assignment, RoundOrder
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.serving.families.elastic_resnet import Network, describe

RATE = 0.1


def plain_network(elastic: ElasticResNet, architecture: Architecture) -> Network:
    """Return a variant in plain torch layers, its norms without running statistics, as in training by batch."""
    network = Network(describe(elastic, architecture))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    return network


def bare_round(
    federation: Federation,
    assignments: list[Assignment],
    modules: dict[Hashable, Network],
    round_index: int,
) -> None:
    """Train every client's passes with plain modules; nothing is sent or merged."""
    method, preparation, training = federation.method, federation.preparation, federation.recipe.training
    for assignment in assignments:
        generator = named_generator(0, "round", round_index, "client", assignment.client.index)
        examples = federation.examples.of_client(assignment.client.index)
        plan = draw_local_plan(len(examples), examples.shape, preparation, round_index, generator)
        batches = make_batches(examples, plan, preparation, torch.float32)
        for step, batch in enumerate(batches):
            passes = method.passes(assignment, step, generator)
            active = [modules[one.architecture] for one in passes]
            parameters = [parameter for module in active for parameter in module.parameters()]
            optimiser = torch.optim.SGD(parameters, lr=RATE, weight_decay=training.weight_decay)
            optimiser.zero_grad()
            carried = None
            for one, module in zip(passes, active, strict=True):
                loss, carried = method.loss(one.role, (module(batch.inputs),), batch, carried, {})
                loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, training.clip_norm)
            optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    federation = assemble(load_recipe(arguments.recipe))
    network = federation.method.network
    assert isinstance(network, ElasticResNet)
    modules: dict[Hashable, Network] = {}
    for point in federation.method.operating_points():
        assert isinstance(point.architecture, Architecture)
        modules[point.architecture] = plain_network(network, point.architecture)
    engine, flat = federation.engine(), federation.initial_weights()
    seconds: dict[str, list[float]] = {"bare": [], "eager": []}
    for round_index in range(arguments.rounds + 3):
        cohort = named_generator(0, "cohort", round_index).choice(federation.participants, 10, replace=False)
        clients = [federation.clients[index] for index in cohort]
        assignments, _ = federation.method.plan_round(
            {}, federation.initial_weights(), clients, round_index, named_generator(0)
        )

        def bare(planned: list[Assignment] = assignments, index: int = round_index) -> None:
            bare_round(federation, planned, modules, index)

        def eager(planned: list[Assignment] = assignments, index: int = round_index) -> None:
            engine.run_round(RoundOrder(flat, planned, index, RATE))

        for name, work in _by_turns(round_index, {"bare": bare, "eager": eager}):
            started = time.perf_counter()
            work()
            if round_index >= 3:  # the first rounds warm caches up
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "recipe": arguments.recipe,
        "rounds": arguments.rounds,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "bare_seconds_per_round": round(medians["bare"], 4),
        "eager_seconds_per_round": round(medians["eager"], 4),
        "ratio": round(medians["eager"] / medians["bare"], 3),
    }
    print(json.dumps(result, indent=2))


def _by_turns(turn: int, works: dict[str, Callable[[], None]]) -> list[tuple[str, Callable[[], None]]]:
    items = list(works.items())
    return items if turn % 2 else items[::-1]


if __name__ == "__main__":
    main()
