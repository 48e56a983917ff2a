"""fedfeast's fleet engine on random weights: seconds of every round, where they go, and the process's memory."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfeast.data import Normalisation
from fedfeast.federation import Aggregation, LocalSgd, Pace, RoundOrder, UpdatePolicy
from fedfeast.flower.engine import FleetEngine, Reach
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import Transport
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import load_recipe
from fedfeast.runs.folder import RunFolder

app = ServerApp()


def memory_mib() -> dict[str, float]:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {key: int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")}


class TimedTransport(Transport):
    """Counts the seconds inside Flower's calls that move something."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.pushing = self.pulling = 0.0

    def send(self, *words: Any) -> Any:
        began = time.perf_counter()
        pending = super().send(*words)
        self.pushing += time.perf_counter() - began
        return pending

    def arrivals(self) -> Any:
        answers = super().arrivals()
        while True:
            began = time.perf_counter()
            answer = next(answers, None)
            if answer is None:
                return  # looking and finding nothing is waiting
            self.pulling += time.perf_counter() - began
            yield answer


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, out = int(config["nodes"]), Path(str(config["out"]))
    recipe = load_recipe(str(config["recipe"]), [f"fleet.least_clients={nodes}", "fleet.deadline_seconds=900"])
    method, _ = build_method(recipe)
    out.mkdir(parents=True, exist_ok=True)
    terms = Terms.of(recipe, method, Normalisation((0.5,), (0.2,)), ())
    transport = TimedTransport(grid)
    fleet = Fleet(transport, RunFolder(out), method, terms, recipe.fleet)
    fleet.gather(0)
    reach = Reach(LocalSgd(clip_norm=1e9), 64, 1)  # what the nodes echo is no training
    engine = FleetEngine(method, fleet, torch.float32, reach, Pace(nodes))
    # Random values: Flower stores equal chunks once, so zeros would travel for nothing.
    flat = torch.from_numpy(named_generator(0, "payload").standard_normal(method.network.layout.size)).float()
    assignments, _ = method.plan_round(method.initial_state(), flat, fleet.roster.clients, 0, named_generator(0))
    rows, policy = [], UpdatePolicy(Aggregation(rule=str(config["rule"])))  # type: ignore[arg-type]
    for round_index in range(int(config["rounds"])):
        fleet.gather(round_index)
        transport.pushing = transport.pulling = 0.0
        began = time.perf_counter()
        result = engine.run_round(RoundOrder(flat, assignments, round_index, 0.1, policy))
        seconds = time.perf_counter() - began
        assert len(result.notes["answered"]) == nodes, "an answer is missing"
        flat, policy = result.flat, replace(policy, history=result.history)
        rows.append(
            {
                "seconds": seconds,
                "pushing": transport.pushing,
                "pulling": transport.pulling,
                "payloads": [assignment.slice_map.payload for assignment in assignments],
                **memory_mib(),
            }
        )
        del result
        (out / "rounds.json").write_text(json.dumps(rows))
    (out / "done").touch()
