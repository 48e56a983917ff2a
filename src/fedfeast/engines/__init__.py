"""Where a round runs."""

from fedfeast.engines.eager import EagerEngine as EagerEngine
