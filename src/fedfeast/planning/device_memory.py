"""Which device memory the graph engine will need, estimated from shapes: no device is asked."""

from typing import Any

import torch

from fedfeast.data.round_batches import BatchRecord
from fedfeast.data.tasks import task_named
from fedfeast.engines.devices import GIB, choose_device, memory_of, require_memory
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.engine import MOST_SLOTS
from fedfeast.engines.graphs.memory import Arrangement, Footprint, arrange, estimate_footprint
from fedfeast.federation import Pass
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_sgd

CARDS_GIB = (12, 16, 24)
DRAWN_STEPS = 8  # of every kind of client, to see which networks their passes take


def plan_memory(built: Outline, num_examples: int) -> dict[str, Any] | None:
    """Return what all clients of a round need at once, and how many fit smaller cards; None for the eager engine."""
    wanted = built.recipe.engine
    device = choose_device(wanted.device)
    present = require_memory(device, wanted.memory_gib)
    if wanted.name == "eager" or wanted.device == "cpu":
        return None
    if present is None and device.type == "cuda":
        present = memory_of(device) / GIB
    context, steps = _context(built), _draw_steps(built)
    footprint = _estimate(built, context, steps, num_examples)
    at_once = min(built.recipe.training.clients_per_round, len(built.participants), MOST_SLOTS)
    costs = [[context.method.network.macs(one.architecture) for one in passes] for passes in steps]

    def fit(gibibytes: float) -> dict[str, float]:
        if gibibytes * GIB < footprint.least():
            return {"gib": gibibytes, "clients": 0, "passes_at_once": 0}
        found = arrange(footprint.room_within(gibibytes * GIB), footprint, at_once, costs)
        return {"gib": gibibytes, "clients": min(found.slots, at_once), "passes_at_once": found.lanes}

    return {
        "is_estimate": True,
        "clients_at_once": at_once,
        "gib": footprint.of(Arrangement(at_once, len(footprint.pools))) / GIB,
        "least_gib": footprint.least() / GIB,
        "cards": [fit(size) for size in CARDS_GIB],
        "present": None if present is None else fit(present),
    }


def _context(built: Outline) -> GraphContext:
    """Return what lanes would share on a CUDA device that has the fused kernels."""
    recipe, method = built.recipe, built.method
    name, is_own = recipe.engine.precision, recipe.network.builder is not None
    weights = torch.float64 if name == "float64" else torch.float32
    rounds = name == "bfloat16" or (name == "auto" and not is_own)
    precision = Precision(weights, torch.bfloat16 if rounds else weights).for_network(method.network)
    shape = (recipe.training.batch_size, *recipe.data.facts.input_shape)
    fused = weights == torch.float32
    return GraphContext(method, build_sgd(recipe, method), precision, torch.device("cpu"), shape, fused)


def _draw_steps(built: Outline) -> list[list[Pass]]:
    generator = named_generator(built.recipe.seed, "memory")
    return [
        built.method.passes(assignment, step, generator)
        for group in built.groups
        for assignment in group.assignments
        for step in range(DRAWN_STEPS)
    ]


def _estimate(built: Outline, context: GraphContext, steps: list[list[Pass]], num_examples: int) -> Footprint:
    facts = built.recipe.data.facts
    takes_tokens = facts.kind == "tokens"
    record = BatchRecord(
        context.input_shape,
        context.precision.activations,
        facts.label_shape,
        takes_tokens=takes_tokens,
        task=task_named(facts.task),
    )
    blank = torch.zeros(2, *facts.input_shape, dtype=torch.int64 if takes_tokens else torch.float32)
    held = num_examples * blank[0].numel() * (8 if takes_tokens else 1)  # bytes of images
    return estimate_footprint(context, steps, blank, record.num_bytes, held)
