"""Replies of the paper population's slices through the checks and the accumulator, as a fleet's server takes them in.

python benchmarks/scripts/stream_replies.py --replies 10000
"""

import argparse
import json
import logging
import resource
import time
from itertools import cycle
from statistics import median

import torch

from fedfeast.federation import Aggregation, Aggregator, Assignment, Client, NormHistory, find_form_fault
from fedfeast.federation.aggregation.refusals import norm_of
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

CLIP_MULTIPLE = 1.5


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def assignments_of(recipe: str) -> tuple[list[Assignment], int]:
    """Return what every client of the population is sent, and the size of the global vector."""
    built = outline(load_recipe(recipe))
    method, population, participants = built.method, built.population, built.participants
    cohort = [
        Client(index, population.names[index], float(population.budgets_macs[index]), num_examples=500)
        for index in participants
    ]
    flat = method.network.initial_weights(named_generator(0, "weights"))
    planned, _ = method.plan_round(method.initial_state(), flat, cohort, 0, named_generator(0, "plan"))
    return planned, flat.numel()


def take_in(aggregator: Aggregator, assignment: Assignment, flat: torch.Tensor, returned: torch.Tensor) -> None:
    """Do with a reply what a fleet's server does: cut out again what was sent, check names and shapes, take it in."""
    sent = assignment.slice_map.gather(flat)
    views = assignment.slice_map.layout.views
    fault = find_form_fault(views(sent), views(returned))
    assert fault is None
    aggregator.take(assignment, sent, returned, num_examples=assignment.client.num_examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="cifar100-paper")
    parser.add_argument("--replies", type=int, default=10_000)
    parser.add_argument("--rule", default="clipped-mean", choices=["mean", "clipped-mean"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.getLogger("fedfeast").setLevel(logging.ERROR)  # a line for every refusal is not measured
    planned, size = assignments_of(options.recipe)
    flat = torch.zeros(size)
    # Every reply is the leading part of one vector of noise, handed over as a view: making it costs nothing, and what
    # taking it in costs does not depend on its values. One in a hundred holds a NaN; about half are above the bound.
    longest = max(one.slice_map.layout.size for one in planned)
    noise = torch.from_numpy(named_generator(0, "noise").standard_normal(longest, dtype="float32")) * 1e-3
    norms = [norm_of(noise[: one.slice_map.layout.size]) for one in planned]
    usual = NormHistory((median(norms) / CLIP_MULTIPLE,))
    before = peak_megabytes()
    options_used = Aggregation(options.rule, clip_multiple=CLIP_MULTIPLE, refuse_multiple=100.0)
    aggregator = Aggregator(flat, options_used, usual, options.replies)
    marks, taken_bytes, replies = {}, 0, cycle(planned)
    started, worked = time.perf_counter(), time.process_time()
    for number in range(1, options.replies + 1):
        assignment = next(replies)
        returned = noise[: assignment.slice_map.layout.size]
        good = float(returned[0])
        if number % 100 == 0:
            returned[0] = float("nan")
        take_in(aggregator, assignment, flat, returned)
        returned[0] = good
        taken_bytes += returned.nbytes
        if number in (10, 100, 1000, options.replies):
            marks[number] = round(peak_megabytes())
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    merged = aggregator.answers.merged_with(flat)
    print(
        json.dumps(
            {
                "rule": options.rule,
                "replies": options.replies,
                "refused": len(aggregator.refusals),
                "threads": options.threads,
                "mean_reply_megabytes": taken_bytes / options.replies / 1e6,
                "gigabytes": taken_bytes / 1e9,
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,  # less than the seconds where others had the cores
                "gigabytes_per_cpu_second": taken_bytes / 1e9 / cpu_seconds,
                "gigabytes_per_second": taken_bytes / 1e9 / seconds,
                "replies_per_second": options.replies / seconds,
                "merge_seconds": time.perf_counter() - started - seconds,
                "moved_positions": int((merged != flat).sum()),
                "peak_megabytes_before": round(before),
                "peak_megabytes_after_replies": marks,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
