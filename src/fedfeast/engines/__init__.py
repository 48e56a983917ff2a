"""Where a round runs."""

from fedfeast.engines.distributed import DistributedEngine as DistributedEngine
from fedfeast.engines.eager import EagerEngine as EagerEngine
from fedfeast.engines.graphs import GraphEngine as GraphEngine
from fedfeast.engines.graphs import Precision as Precision
