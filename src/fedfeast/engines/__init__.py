"""Where a round runs."""

import os

# Read once, when CUDA starts: how many streams reach the device side by side. The graph engine has about 40.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

from fedfeast.engines.distributed import DistributedEngine as DistributedEngine
from fedfeast.engines.eager import EagerEngine as EagerEngine
from fedfeast.engines.graphs import GraphEngine as GraphEngine
from fedfeast.engines.graphs import Precision as Precision
