"""How much memory runs side by side have, and how much each of them needs at least."""

import os
import subprocess
from collections.abc import Mapping
from math import inf, prod
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fedfeast.engines.devices import choose_engine
from fedfeast.errors import InvalidInput
from fedfeast.federation import Method
from fedfeast.networks.normalisation import by_batch
from fedfeast.recipes import Recipe
from fedfeast.recipes.building import build_method
from fedfeast.studies.side_by_side.interpreter import child_variables, python_words

MEMORY_VARIABLE = "FEDFEAST_DEVICE_MEMORY_GIB"
GIB = 2**30
# What a process takes before it has a weight: its CUDA context, or Python with its libraries in the main memory.
PROCESS_GIB = {"cuda": 0.6, "cpu": 0.4}
# Bytes a parameter, at least: the round's vector, the next and the best one, a client's weights and gradient in
# float32; the sum and the weights of the answers in float64.
PARAMETER_BYTES = 5 * 4 + 2 * 8
INPUT_BYTES = {"images": 1, "numbers": 4, "tokens": 4}
ASK = "import torch; torch.cuda.init(); print(torch.cuda.mem_get_info()[0])"


class NoAnswer(Exception):
    """A process of its own could not use the CUDA device; the reason is in its last line."""


def smallest_need(recipe: Recipe, device: torch.device) -> float:
    """Return the GiB of a device that a run takes at least: itself, its examples, its vectors and one mini-batch."""
    method, _ = build_method(recipe)
    facts = recipe.data.facts
    examples = sum(facts.examples.values()) * prod(facts.input_shape) * INPUT_BYTES[facts.kind]
    vectors = method.network.layout.num_parameters * PARAMETER_BYTES
    # What a network of the user's own keeps for its gradients only running it would tell.
    features = 0 if recipe.network.builder is not None else _features_bytes(recipe, method, device)
    return PROCESS_GIB[device.type] + (examples + vectors + features) / GIB


def ask_free_memory(variables: Mapping[str, str]) -> float:
    """Return the free GiB of the CUDA device, asked by a process that ends: this one takes nothing of the device."""
    words = [*python_words(), "-c", ASK]
    done = subprocess.run(words, capture_output=True, text=True, env=child_variables(variables))
    if done.returncode != 0:
        raise NoAnswer(([line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"])[-1])
    return int(done.stdout) / GIB


def available_memory() -> float:
    """Return the GiB of main memory that new processes can have; without end where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return inf
    kibibytes = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(number) / 2**20 for number in kibibytes), inf)


def allowed_memory(free: float) -> float:
    """Return the GiB that runs may share: what is free, and no more than the user allows."""
    given = os.environ.get(MEMORY_VARIABLE)
    if given is None:
        return free
    try:
        allowed = float(given)
    except ValueError:
        allowed = 0.0
    if not allowed > 0:
        raise InvalidInput(f"${MEMORY_VARIABLE} = {given!r} is no memory: give a number of GiB above 0, or unset it.")
    return min(allowed, free)


def _features_bytes(recipe: Recipe, method: Method, device: torch.device) -> int:
    """Return what a training pass of the largest served network keeps for its gradients, computed without computing."""
    _, precision = choose_engine(recipe.engine.name, recipe.engine.precision, device)
    dtype = {"bfloat16": torch.bfloat16, "float64": torch.float64}.get(precision, torch.float32)
    largest = max(method.operating_points(), key=lambda point: point.macs).architecture
    shapes = method.network.shapes(largest)
    weights = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in shapes.items()}
    for weight in weights.values():
        weight.requires_grad_()
    inputs = torch.empty((recipe.training.batch_size, *recipe.data.facts.input_shape), dtype=dtype, device="meta")
    kept: dict[int, Tensor] = {}  # by storage, which views share

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        method.network.forward(weights, inputs, largest, by_batch)
    own = {weight.untyped_storage()._cdata for weight in weights.values()}
    return sum(one.untyped_storage().nbytes() for storage, one in kept.items() if storage not in own)
