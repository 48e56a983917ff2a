"""A prepared data set that nobody has to look at."""

from pathlib import Path

import numpy as np

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.prepared import write_prepared


def write_grey(data: Path, level: int, examples: int = 20) -> None:
    """Prepare grey images of one level as the data set "mine"."""
    labels = {split: np.arange(examples, dtype=np.int64) % 10 for split in ("train", "test")}
    blocks = [(split, 0, np.full((examples, 1, 8, 8), level, np.uint8)) for split in labels]
    data.mkdir(exist_ok=True)
    decoded = Decoded(tuple("abcdefghij"), 1, 8, labels, blocks)
    write_prepared(data / "mine", decoded, {"normalisation": None, "source": {}})
