"""What the rest of a training will cost: time and memory, from a few passes timed on this device."""

from dataclasses import dataclass

import numpy as np

from fedfeast.engines.devices import choose_device, choose_engine
from fedfeast.planning.device_memory import least_memory, plan_memory
from fedfeast.planning.outline import Outline
from fedfeast.planning.timing import predict_time, time_passes
from fedfeast.stopwatch import Repeats
from fedfeast.units import format_seconds, format_threads

QUICK = Repeats(least=2, most_seconds=0.2)  # of each network: training itself waits for it


@dataclass(frozen=True)
class Cost:
    """What so many rounds will take."""

    rounds: int
    engine: str
    gib: float  # of the device's memory
    seconds_per_round: float | None = None  # None: nothing was timed
    threads: int | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        memory = f"{self.gib:.2g} GiB of {'GPU ' if self.engine == 'graphs' else ''}memory"
        if self.seconds_per_round is None or self.threads is None:
            return f"{self.rounds:,} rounds will need about {memory}; how long they take shows after the first ones"
        threads = format_threads(self.threads)
        a_round, in_all = format_seconds(self.seconds_per_round), format_seconds(self.seconds_per_round * self.rounds)
        return f"{self.rounds:,} rounds will take about {in_all} here ({a_round} a round, {threads}) and {memory}"


def estimate_cost(built: Outline, num_examples: np.ndarray, rounds: int, processes: int = 1) -> Cost:
    """Return what so many rounds cost on this device; only the eager engine in one process is timed."""
    recipe, device = built.recipe, choose_device(built.recipe.engine.device)
    is_own = recipe.network.builder is not None
    engine, _ = choose_engine(recipe.engine.name, recipe.engine.precision, device, is_own)
    memory = plan_memory(built, int(num_examples.sum())) if engine == "graphs" else None
    gib = least_memory(recipe, device) if memory is None else memory["gib"]
    if engine != "eager" or processes > 1:
        return Cost(rounds, engine, gib)
    predicted = predict_time(built, num_examples, time_passes(built, repeats=QUICK))
    return Cost(rounds, engine, gib, predicted["seconds_per_round"], predicted["threads"])
