"""Which part of the tensor a planned or realized federation reaches, and with how much data (Secs. 3.3 and 3.4)."""

from dataclasses import asdict
from typing import Any

import numpy as np

from fedfeast.data import count_steps
from fedfeast.evaluation.exposure import Exposure, bound_coefficients, estimate_scales, measure_coverage
from fedfeast.evaluation.slice_regions import cut_regions
from fedfeast.federation import learning_rate
from fedfeast.methods import Feast
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_pace, build_sgd

COHORT_DRAWS = 2000


def cover(built: Outline, num_examples: np.ndarray) -> dict[str, Any] | None:
    """Return coverage by stage and block and the scales of Theorem 1; None for a method without slices to share."""
    method, recipe = built.method, built.recipe
    if not isinstance(method, Feast):
        return None
    training, budgets = recipe.training, built.population.budgets_macs
    regions = cut_regions(method.network, method.cache)
    exposure = Exposure.of(regions, method.cache, budgets, num_examples, method.rule)
    shares = num_examples / num_examples.sum()
    if built.natural is None and recipe.partition.file is None:
        shares = built.population.data_shares(recipe.population.gamma, recipe.population.cap_macs)
    batching = (training.batch_size, training.local_epochs, training.last_batch, training.least_distinct)
    steps = [count_steps(int(np.ceil(n)), *batching) for n in num_examples]
    generator = named_generator(recipe.seed, "coverage")
    cohort = build_pace(recipe).buffer or training.clients_per_round
    scales = estimate_scales(exposure, steps, cohort, COHORT_DRAWS, generator)
    start = build_sgd(recipe, method).learning_rate
    rates = [
        learning_rate(start, training.schedule, index, training.rounds, training.warmup_rounds)
        for index in range(training.rounds)
    ]
    bound = bound_coefficients(scales.psi_min, rates)
    served = regions.num_parameters[exposure.served].sum()
    received = regions.num_parameters[exposure.routed_sum(np.ones(len(budgets))) > 0].sum()
    return {
        "routed_parameters": int(received),
        "activated_parameters": int(served),
        "psi_min": scales.psi_min,
        "psi_min_standard_error": float(scales.standard_errors[scales.least]),
        "psi_max": scales.psi_max,
        "cohort_draws": COHORT_DRAWS,
        "bound": asdict(bound),
        "parts": [
            {
                "stage": one.part.stage,
                "block": one.part.block or 0,
                "parameters": one.parameters,
                "routed_parameters": one.routed_parameters,
                "activated_parameters": one.activated_parameters,
                "client_share": one.routed.clients,
                "data_share": one.routed.examples,
                "activated_data_share": one.activated.examples,
                "target_share": one.routed.targets,
            }
            for one in measure_coverage(exposure, shares)
        ],
    }
