"""Who takes part, with which budget, holding which examples."""

from fedfeast.population.authors import authors_population as authors_population
from fedfeast.population.authors import partition_as_authors as partition_as_authors
from fedfeast.population.authors import partition_stream as partition_stream
from fedfeast.population.budgets import Population as Population
from fedfeast.population.budgets import paper_population as paper_population
from fedfeast.population.budgets import ranks_to_budgets as ranks_to_budgets
from fedfeast.population.budgets import read_population as read_population
from fedfeast.population.budgets import zipf_population as zipf_population
from fedfeast.population.budgets import zipf_ranks as zipf_ranks
from fedfeast.population.partition import Partition as Partition
from fedfeast.population.partition import Shards as Shards
from fedfeast.population.partition import alpha_data_from_effective as alpha_data_from_effective
from fedfeast.population.partition import partition_by_budget as partition_by_budget
