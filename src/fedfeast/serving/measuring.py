"""What this device can afford: a few variants of a recipe's space, timed as they would be served."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from fedfeast.engines.devices import choose_device
from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.machine import device_name, peak_memory_megabytes, usable_cores
from fedfeast.networks import ElasticResNet, Layout, ResNet
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.normalisation import ByStatistics, RecordingByBatch
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.serving.choice import spread_points
from fedfeast.serving.families.registry import uncalibrated
from fedfeast.serving.latency import REPEATS, WARM_UPS, served_call
from fedfeast.serving.onnx.packages import import_onnxruntime
from fedfeast.stopwatch import Repeats, time_calls, waiting_for

# Sizes are timed in turn, a few repeats each, so that what disturbs the machine for a while disturbs no size alone.
TURNS = 3
EAGER = Repeats(most=5, least=1, most_seconds=1.5)  # of one variant in one turn
SERVED = Repeats(most=REPEATS // TURNS, least=2, most_seconds=4.0)
EAGER_WARM_UPS = 3
BUSY = 2.0  # times the fastest repeat: a median beyond it says that other programs were at work


OnTimed = Callable[["Timing", int], None]  # the newest timing, and how many there will be of all sizes and turns


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

    def facts(self) -> dict[str, Any]:
        """Return the timing as plain values."""
        return {
            "name": self.name,
            "macs": self.macs,
            "parameters": self.parameters,
            "milliseconds": self.milliseconds,
            "fastest_milliseconds": self.spread[0],
            "slowest_milliseconds": self.spread[1],
            "repeats": self.repeats,
            "macs_per_second": self.macs_per_second,
        }


def measure_device(
    recipe: str | Path | Recipe,
    settings: Mapping[str, Any] | Sequence[str] = (),
    target_milliseconds: float | None = None,
    threads: int | None = None,
    num_variants: int = 5,
    on_timed: OnTimed = lambda timing, total: None,
) -> dict[str, Any]:
    """Time variants of a recipe's space as they are served; with a target latency, suggest a budget in MACs.

    On a CPU they are timed as ``latency.measure_latency`` does it, so that a suggested budget and a choice by latency
    agree; on a CUDA device, or without the [export] extra, in eager torch. Every variant is told of after each of
    ``TURNS`` turns, with all its repeats so far. A latency that no network keeps is said under ``refused``.
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
    points = spread_points(method.operating_points(), num_variants)

    def prepare(point: OperatingPoint) -> _Prepared:
        deployed = _untrained(method, point)
        if served:
            return _Prepared(served_call(uncalibrated(deployed, loaded.data.facts), used), SERVED, WARM_UPS)
        return _Prepared(_eager_call(deployed, loaded, device), EAGER, EAGER_WARM_UPS, waiting_for(device.type))

    try:
        torch.set_num_threads(used)
        timings = _time_in_turn(points, prepare, on_timed)
    finally:
        torch.set_num_threads(before)
    measured: dict[str, Any] = {
        "recipe": loaded.name,
        "method": loaded.method_name,
        "device": device_name(device.type),
        "threads": used,
        "runtime": f"onnxruntime {import_onnxruntime().__version__}" if served else f"eager torch {torch.__version__}",
        "variants": [timing.facts() for timing in timings],
        "peak_memory_megabytes": _peak_memory(device),
        "is_busy": any(timing.milliseconds > BUSY * timing.spread[0] for timing in timings),
    }
    if target_milliseconds is not None:
        prices = {point.name: point.price for point in method.operating_points()}  # what budgets are compared with
        priced = [replace(timing, macs=prices[timing.name]) for timing in timings]
        try:
            measured["suggestion"] = suggest_budget(priced, list(prices.values()), target_milliseconds)
        except InvalidInput as error:
            measured["refused"] = str(error)  # what was measured is worth as much without it
    return measured


class _Prepared(NamedTuple):
    """What predicts one example, and how it is timed."""

    call: Callable[[], object]
    repeats: Repeats  # in one turn
    warm_ups: int  # in the first turn
    wait_for_device: Callable[[], object] = lambda: None


def _time_in_turn(
    points: Sequence[OperatingPoint], prepare: Callable[[OperatingPoint], _Prepared], on_timed: OnTimed
) -> list[Timing]:
    """Time networks in turn until each had all its turns."""
    prepared, times = dict[str, _Prepared](), dict[str, list[float]]()
    timings: dict[str, Timing] = {}
    for turn in range(TURNS):
        for point in points:
            if turn == 0:
                prepared[point.name] = prepare(point)
            one = prepared[point.name]
            repeats = replace(one.repeats, warm_ups=one.warm_ups if turn == 0 else 0)
            all_times = times.setdefault(point.name, [])
            all_times += time_calls(one.call, repeats, one.wait_for_device)
            spread = (min(all_times), max(all_times))
            timing = Timing(point.name, point.macs, point.parameters, median(all_times), spread, len(all_times))
            timings[point.name] = timing
            on_timed(timing, TURNS * len(points))
    return list(timings.values())


def suggest_budget(timings: Sequence[Timing], served_macs: Sequence[int], target_milliseconds: float) -> dict[str, Any]:
    """Return the most MACs within a latency, and the largest network that serves; by lines between the measured."""
    # Choice: other programs only ever make a network slower, so that it takes no longer than a larger one took.
    fastest = np.minimum.accumulate([timing.milliseconds for timing in timings][::-1])[::-1]
    macs = [float(timing.macs) for timing in timings]
    if target_milliseconds < fastest[0]:
        raise InvalidInput(
            f"--target-ms {target_milliseconds:g}: the smallest network takes {fastest[0]:.3g} ms here "
            f"({timings[0].macs:,} MACs); give a longer latency, or a recipe with smaller networks."
        )
    kept = int(np.searchsorted(fastest, target_milliseconds, "right")) - 1  # the largest one within the latency
    budget = macs[kept]
    if kept + 1 < len(macs):  # nothing is promised beyond the largest network that was timed
        share = (target_milliseconds - fastest[kept]) / (fastest[kept + 1] - fastest[kept])
        budget += share * (macs[kept + 1] - macs[kept])
    largest = max(one for one in served_macs if one <= budget)
    return {"target_milliseconds": target_milliseconds, "budget_macs": int(budget), "served_macs": largest}


def _untrained(method: Method, point: OperatingPoint) -> Deployed:
    """Return a point's network with weights as training starts from them: their values do not change the time."""
    network = method.network
    if not isinstance(network, ElasticResNet | ResNet):
        return method.deploy(network.initial_weights(named_generator(0, "measure")), point)
    layout = Layout.of(method.network.shapes(point.architecture))
    weights = draw_weights(layout, named_generator(0, "measure", point.name))
    return Deployed(method.network, point.architecture, layout, weights, point.macs, point.parameters)


def _eager_call(deployed: Deployed, recipe: Recipe, device: torch.device) -> Callable[[], object]:
    """Return what predicts one example in eager torch, normalised by statistics that were measured before."""
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

    def predict() -> None:
        with torch.inference_mode():
            deployed(on_device, statistics)

    return predict


def _peak_memory(device: torch.device) -> float | None:
    """Return the megabytes that this process held at most, or that torch held on a CUDA device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    return peak_memory_megabytes()
