"""The graph engine: a round as captured CUDA graphs, clients and passes side by side."""

from fedfeast.engines.graphs.context import Precision as Precision
from fedfeast.engines.graphs.engine import GraphEngine as GraphEngine
