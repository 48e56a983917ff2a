"""Who takes part, with which budget, holding which examples."""

from fedfeast.population.budgets import (
    Population,
    paper_population,
    ranks_to_budgets,
    read_population,
    zipf_population,
    zipf_ranks,
)
from fedfeast.population.partition import (
    Partition,
    Shards,
    alpha_data_from_effective,
    partition_by_budget,
)

__all__ = [
    "Partition",
    "Population",
    "Shards",
    "alpha_data_from_effective",
    "paper_population",
    "partition_by_budget",
    "ranks_to_budgets",
    "read_population",
    "zipf_population",
    "zipf_ranks",
]
