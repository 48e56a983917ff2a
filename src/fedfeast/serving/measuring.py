"""What this device can afford: a few variants of a recipe's space, timed as they would be served."""

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedfeast.engines.devices import choose_device
from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.machine import device_name, usable_cores
from fedfeast.networks import Layout
from fedfeast.networks.built import BuiltNetwork
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.normalisation import ByStatistics, RecordingByBatch
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.serving.choice import spread_points
from fedfeast.serving.families.registry import uncalibrated
from fedfeast.serving.latency import time_served
from fedfeast.serving.onnx.packages import import_onnxruntime
from fedfeast.stopwatch import Repeats, time_calls, waiting_for

EAGER = Repeats(most=15, least=3, most_seconds=4.0, warm_ups=3)  # of one variant


@dataclass(frozen=True)
class Timing:
    """One variant on this device, one image at a time."""

    name: str
    macs: int
    parameters: int
    milliseconds: float  # the median of the repeats
    spread: tuple[float, float]  # the fastest and the slowest repeat
    repeats: int

    @property
    def macs_per_second(self) -> float:
        """Multiply-accumulates in a second."""
        return self.macs / self.milliseconds * 1e3


def measure_device(
    recipe: str | Path | Recipe,
    settings: Mapping[str, Any] | Sequence[str] = (),
    target_milliseconds: float | None = None,
    threads: int | None = None,
    num_variants: int = 5,
    on_variant: Callable[[Timing], None] = lambda timing: None,
) -> dict[str, Any]:
    """Time variants of a recipe's space as they are served; with a target latency, suggest a budget in MACs.

    On a CPU they are timed as ``latency.measure_latency`` does it, so that a suggested budget and a choice by latency
    agree; on a CUDA device, or without the [export] extra, in eager torch.
    """
    if target_milliseconds is not None and not 0 < target_milliseconds < float("inf"):
        raise InvalidInput(f"--target-ms {target_milliseconds:g}: give a latency in milliseconds, above 0.")
    if num_variants < 2:
        raise InvalidInput(f"--variants {num_variants}: at least two are needed, a small and a large one.")
    if threads is not None and not 1 <= threads <= 1024:
        raise InvalidInput(f"--threads {threads}: give a number from 1 to 1024.")
    loaded = resolve_recipe(recipe, settings)
    device = choose_device(loaded.engine.device)
    needed = ("onnx", "onnxruntime", *(["onnxscript"] if loaded.network.builder is not None else []))
    served = device.type == "cpu" and all(map(find_spec, needed))
    before = torch.get_num_threads()
    used = (threads or usable_cores()) if served else (threads or loaded.engine.threads or before)
    method, _ = build_method(loaded)
    timings = []
    try:
        torch.set_num_threads(used)
        for point in spread_points(method.operating_points(), num_variants):
            deployed = _untrained(method, point)
            times = time_served(uncalibrated(deployed), used) if served else _time_eager(deployed, loaded, device)
            spread = (min(times), max(times))
            timings.append(Timing(point.name, point.macs, point.parameters, median(times), spread, len(times)))
            on_variant(timings[-1])
    finally:
        torch.set_num_threads(before)
    measured: dict[str, Any] = {
        "recipe": loaded.name,
        "method": loaded.method_name,
        "device": device_name(device.type),
        "threads": used,
        "runtime": f"onnxruntime {import_onnxruntime().__version__}" if served else f"eager torch {torch.__version__}",
        "variants": [_describe(timing) for timing in timings],
        "peak_memory_megabytes": _peak_memory(device),
    }
    if target_milliseconds is not None:
        points = method.operating_points()
        prices = {point.name: point.price for point in points}  # what budgets are compared with
        priced = [replace(timing, macs=prices[timing.name]) for timing in timings]
        measured["suggestion"] = suggest_budget(priced, list(prices.values()), target_milliseconds)
    return measured


def suggest_budget(timings: Sequence[Timing], served_macs: Sequence[int], target_milliseconds: float) -> dict[str, Any]:
    """Return the most MACs within a latency, and the largest network that serves; by lines between the measured."""
    # Choice: a larger network is never taken to be faster than a smaller one that was slower (timings are noisy).
    slowest = np.maximum.accumulate([timing.milliseconds for timing in timings])
    macs = np.array([float(timing.macs) for timing in timings])
    if target_milliseconds < slowest[0]:
        raise InvalidInput(
            f"--target-ms {target_milliseconds:g}: the smallest network takes {slowest[0]:.3g} ms here "
            f"({timings[0].macs:,} MACs); give a longer latency, or a recipe with smaller networks."
        )
    # Choice: nothing is promised beyond the largest network that was timed.
    budget = (
        float(macs[-1]) if target_milliseconds >= slowest[-1] else float(np.interp(target_milliseconds, slowest, macs))
    )
    largest = max(one for one in served_macs if one <= budget)
    return {"target_milliseconds": target_milliseconds, "budget_macs": int(budget), "served_macs": largest}


def _untrained(method: Method, point: OperatingPoint) -> Deployed:
    """Return a point's network with weights as training starts from them: their values do not change the time."""
    if isinstance(method.network, BuiltNetwork):
        return method.deploy(method.network.initial_weights(named_generator(0, "measure")), point)
    layout = Layout.of(method.network.shapes(point.architecture))
    weights = draw_weights(layout, named_generator(0, "measure", point.name))
    return Deployed(method.network, point.architecture, layout, weights, point.macs, point.parameters)


def _time_eager(deployed: Deployed, recipe: Recipe, device: torch.device) -> list[float]:
    """Return the milliseconds of one example again and again, normalised by statistics that were measured before."""
    facts, deployed = recipe.data.facts, replace(deployed, flat=deployed.flat.to(device))
    shape = (1, *facts.input_shape)
    if facts.kind == "tokens":
        on_device = torch.zeros(shape, dtype=torch.int64, device=device)
    else:
        numbers = named_generator(0, "measure").normal(size=shape)
        on_device = torch.from_numpy(numbers).to(device, torch.float32)
    with torch.inference_mode():
        recording = RecordingByBatch()
        deployed(torch.cat((on_device, on_device)), recording)
        statistics = ByStatistics(recording.statistics(deployed.flat.dtype))
        return time_calls(lambda: deployed(on_device, statistics), EAGER, waiting_for(device.type))


def _peak_memory(device: torch.device) -> float:
    """Return the most memory that this process held, or that torch held on a CUDA device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3  # bytes there, kilobytes elsewhere


def _describe(timing: Timing) -> dict[str, Any]:
    return {
        "name": timing.name,
        "macs": timing.macs,
        "parameters": timing.parameters,
        "milliseconds": timing.milliseconds,
        "fastest_milliseconds": timing.spread[0],
        "slowest_milliseconds": timing.spread[1],
        "repeats": timing.repeats,
        "macs_per_second": timing.macs_per_second,
    }
