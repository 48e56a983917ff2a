"""Predicted training time from a few measured passes on this device."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedfeast.engines.devices import choose_device
from fedfeast.machine import device_name, usable_cores
from fedfeast.networks import Layout
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.batching import plan_batches
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.stopwatch import Repeats, time_calls, waiting_for

MEASURED_BATCH = 4  # examples; keeps the measurement short, the times are scaled to the recipe's batch
MEASURED = Repeats(least=2, most_seconds=1.0)  # of each architecture; the fastest pass counts


@dataclass(frozen=True)
class PassTimes:
    """Seconds of one training pass of MEASURED_BATCH examples, as a straight line in convolution MACs."""

    device: str
    threads: int
    measured: tuple[tuple[int, float], ...]  # MACs, seconds
    intercept: float  # seconds
    slope: float  # seconds per MAC

    def predict(self, macs: float, rows: float) -> float:
        """Return the seconds of a pass of a batch of so many examples."""
        return self.intercept + self.slope * macs * rows / MEASURED_BATCH


def passes_to_time(built: Outline) -> list[Any]:
    """Return the smallest, a middle and the largest network that somebody trains."""
    trained = list(dict.fromkeys(one for group in built.groups for one in group.expected_passes(built.method)))
    trained.sort(key=built.method.network.convolution_macs)
    return [trained[position] for position in sorted({0, len(trained) // 2, len(trained) - 1})]


def time_passes(
    built: Outline, on_pass: Callable[[int], None] = lambda macs: None, repeats: Repeats | None = None
) -> PassTimes:
    """Measure a few networks with the threads that training will have; each one's MACs are told when it is done."""
    network, device = built.method.network, choose_device(built.recipe.engine.device)
    chosen = passes_to_time(built)
    macs = [network.convolution_macs(one) for one in chosen]
    before, threads = torch.get_num_threads(), built.recipe.engine.threads or usable_cores()
    seconds: list[float] = []
    try:
        torch.set_num_threads(threads)
        for architecture, cost in zip(chosen, macs, strict=True):
            seconds.append(_measure(built, architecture, device, repeats or MEASURED))
            on_pass(cost)
    finally:
        torch.set_num_threads(before)
    return PassTimes(
        device_name(device.type), threads, tuple(zip(macs, seconds, strict=True)), *fit_line(macs, seconds)
    )


def fit_line(macs: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the intercept and the slope of passes' seconds by their MACs, neither below 0."""
    if len(set(macs)) > 1:
        slope, intercept = np.polyfit(macs, seconds, 1)
        return max(float(intercept), 0.0), max(float(slope), 0.0)
    mean = sum(seconds) / len(seconds)
    # Networks without convolutions have none of these MACs: a pass takes what it takes.
    return (0.0, mean / macs[0]) if macs[0] else (mean, 0.0)


def predict_time(built: Outline, expected_examples: np.ndarray, times: PassTimes) -> dict[str, Any]:
    """Return the seconds of an average round and the hours of the whole training."""
    training, network = built.recipe.training, built.method.network
    per_round = 0.0
    for group in built.groups:
        batches = plan_batches(training, expected_examples[group.clients])
        steps = float(batches.steps.sum())
        if not steps:
            continue
        # Times are a line in the number of examples, so that the mean batch stands for all of them.
        rows = float((batches.full * training.batch_size + batches.last_rows).sum()) / steps
        passes = group.expected_passes(built.method).items()
        step = sum(share * times.predict(network.convolution_macs(one), rows) for one, share in passes)
        per_round += training.local_epochs * step * steps * built.rounds_per_client / training.rounds
    return {
        "device": times.device,
        "threads": times.threads,
        "measured_passes": [{"macs": macs, "seconds": seconds} for macs, seconds in times.measured],
        "seconds_per_round": per_round,
        "hours": per_round * training.rounds / 3600,
    }


def _measure(built: Outline, architecture: Hashable, device: torch.device, repeats: Repeats) -> float:
    """Return the seconds of the fastest of a few training passes."""
    network, facts = built.method.network, built.recipe.data.facts
    shape, generator = (MEASURED_BATCH, *facts.input_shape), named_generator(0, "images")
    if facts.kind == "tokens":
        inputs = torch.from_numpy(generator.integers(facts.vocabulary, size=shape)).to(device)
    else:
        inputs = torch.from_numpy(generator.normal(size=shape)).to(device, torch.float32)
    layout = Layout.of(network.shapes(architecture))
    views = layout.views(torch.full((layout.size,), 0.01, device=device))
    leaves = {name: view.detach().requires_grad_() for name, view in views.items()}

    def train() -> None:
        outputs = network.forward(leaves, inputs, architecture, by_batch)
        torch.autograd.grad(torch.stack([one.square().mean() for one in outputs]).sum(), list(leaves.values()))

    return min(time_calls(train, repeats, waiting_for(device.type))) / 1e3
