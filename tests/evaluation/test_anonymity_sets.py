"""The script that counts holders of regions, against cohorts counted position by position."""

import anonymity_sets
import numpy as np
import torch
from tiny import TINY, as_settings

from fedfeast.federation import Client, sample_cohort
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe


def test_sets_are_those_of_positions_one_by_one() -> None:
    settings = as_settings({**TINY, "training.rounds": 5, "training.clients_per_round": 6})
    measured = anonymity_sets.measure_anonymity("digits", settings)
    built = outline(load_recipe("digits", settings))
    method, population = built.method, built.population
    flat, smallest, sent = torch.zeros(method.network.layout.size), [], []
    for index in range(5):
        drawn = sample_cohort(built.participants, 6, named_generator(built.recipe.seed, "cohort", index))
        cohort = [Client(one, population.names[one], population.budgets_macs[one], 1) for one in drawn]
        holders = np.zeros(len(flat), dtype=np.int64)
        for assignment in method.plan_round({}, flat, cohort, index, named_generator(0))[0]:
            holders[assignment.slice_map.index().numpy()] += 1
        smallest.append(holders[holders > 0].min())
        sent.append(holders[holders > 0])
    together = np.concatenate(sent)
    assert measured["smallest_set_of_a_round"] == {"median": np.median(smallest), "most": max(smallest)}
    assert measured["rounds_with_a_region_held_by_one"] == np.mean(np.array(smallest) == 1)
    for k in (2, 3, 5):
        assert abs(measured["sent_positions_below"][str(k)] - (together < k).mean()) < 1e-12
    median = np.sort(together)[len(together) // 2]
    assert measured["holders_of_a_sent_position"]["50%"] == median
