"""Which device memory a run will need, estimated from shapes: no device is asked."""

from math import prod
from typing import Any

import torch

from fedfeast.data.round_batches import BatchRecord
from fedfeast.data.tasks import task_named
from fedfeast.engines.devices import choose_device, choose_engine, memory_of, require_memory
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.engine import MOST_SLOTS
from fedfeast.engines.graphs.memory import (
    OUTSIDE_TORCH,
    Arrangement,
    Footprint,
    arrange,
    estimate_footprint,
    saved_bytes_by_autograd,
)
from fedfeast.federation import Method, Pass
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method, build_pace, build_server, build_sgd
from fedfeast.recipes.recipe import Recipe
from fedfeast.units import GIB

CARDS_GIB = (12, 16, 24)
DRAWN_STEPS = 8  # of every kind of client, to see which networks their passes take
INPUT_BYTES = {"images": 1, "numbers": 4, "tokens": 4}  # of each value of an example, as the device holds it
PYTHON_BYTES = int(0.4 * GIB)  # of main memory: Python with its libraries


def plan_memory(built: Outline, num_examples: int) -> dict[str, Any] | None:
    """Return what all clients of a round need at once, and how many fit smaller cards; None for the eager engine."""
    wanted = built.recipe.engine
    device = choose_device(wanted.device)
    present = require_memory(device, wanted.memory_gib)
    if wanted.name == "eager" or wanted.device == "cpu":
        return None
    if present is None and device.type == "cuda":
        present = memory_of(device) / GIB
    context, steps = _context(built.recipe, built.method), _draw_steps(built)
    footprint = _estimate(built.recipe, context, steps, num_examples)
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


def least_memory(recipe: Recipe, device: torch.device) -> float:
    """Return about how many GiB of a device a run needs at least: room for all examples and one client at a time."""
    method, _ = build_method(recipe)
    wanted, is_own = recipe.engine, recipe.network.builder is not None
    name, _ = choose_engine(wanted.name, wanted.precision, device, is_own)
    num_examples = sum(recipe.data.facts.examples.values())
    if name == "eager":
        return _least_of_eager(recipe, method, num_examples, device) / GIB
    context = _context(recipe, method)
    return _estimate(recipe, context, [[Pass(context.largest, "alone")]], num_examples).least() / GIB


def _context(recipe: Recipe, method: Method, may_fuse: bool = True) -> GraphContext:
    """Return what lanes would share on a CUDA device that has the fused kernels."""
    name, is_own = recipe.engine.precision, recipe.network.builder is not None
    weights = torch.float64 if name == "float64" else torch.float32
    rounds = may_fuse and (name == "bfloat16" or (name == "auto" and not is_own))
    precision = Precision(weights, torch.bfloat16 if rounds else weights).for_network(method.network)
    shape = (recipe.training.batch_size, *recipe.data.facts.input_shape)
    fused = may_fuse and weights == torch.float32
    return GraphContext(
        method, build_sgd(recipe, method), precision, torch.device("cpu"), shape, fused,
        short_batches=recipe.training.last_batch == "short", in_cuda=precision.activations == torch.bfloat16,
    )  # fmt: skip


def _draw_steps(built: Outline) -> list[list[Pass]]:
    generator = named_generator(built.recipe.seed, "memory")
    return [
        built.method.passes(assignment, step, generator)
        for group in built.groups
        for assignment in group.assignments
        for step in range(DRAWN_STEPS)
    ]


def _estimate(recipe: Recipe, context: GraphContext, steps: list[list[Pass]], num_examples: int) -> Footprint:
    facts = recipe.data.facts
    record = BatchRecord(
        context.input_shape,
        context.precision.activations,
        facts.label_shape,
        takes_tokens=facts.kind == "tokens",
        task=task_named(facts.task),
    )
    held = _example_bytes(recipe, num_examples) + _server_bytes(recipe, context)
    return estimate_footprint(context, steps, _blank_inputs(recipe), record.num_bytes, held)


def _least_of_eager(recipe: Recipe, method: Method, num_examples: int, device: torch.device) -> int:
    """Return the bytes of the eager engine's process, examples and vectors, and of one pass of the largest network."""
    context = _context(recipe, method, may_fuse=False)
    # The round's vector, the next and the best one, a client's own; sums and weights in float64.
    own = 3 if context.sgd.momentum else 2  # weights, gradient, velocity
    vectors = method.network.layout.size * ((3 + own) * context.precision.weights.itemsize + 2 * torch.float64.itemsize)
    saved = saved_bytes_by_autograd(context, context.largest, _blank_inputs(recipe))
    process = OUTSIDE_TORCH if device.type == "cuda" else PYTHON_BYTES
    return process + _example_bytes(recipe, num_examples) + vectors + _server_bytes(recipe, context) + saved


def _server_bytes(recipe: Recipe, context: GraphContext) -> int:
    """Return what the server's optimiser keeps, as much again while it makes a step, and what clients work on."""
    method, pace = context.method, build_pace(recipe)
    # Of buffered merges every client at work may have left from a vector of its own.
    vectors = 2 * build_server(recipe, method).num_vectors + (pace.at_once if pace.is_buffered else 0)
    return vectors * method.network.layout.size * context.precision.weights.itemsize


def _blank_inputs(recipe: Recipe) -> torch.Tensor:
    facts = recipe.data.facts
    return torch.zeros(2, *facts.input_shape, dtype=torch.int64 if facts.kind == "tokens" else torch.float32)


def _example_bytes(recipe: Recipe, num_examples: int) -> int:
    facts = recipe.data.facts
    return num_examples * prod(facts.input_shape) * INPUT_BYTES[facts.kind]
