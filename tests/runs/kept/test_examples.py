from pathlib import Path

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.runs.kept.examples import KeptExamples


def test_a_bit_for_every_network_and_example(tmp_path: Path) -> None:
    file = tmp_path / "test_examples.safetensors"
    kept, right = KeptExamples(file), np.random.default_rng(0).random((3, 21)) < 0.5
    assert kept.load() is None
    kept.save(right)
    found = kept.load()
    assert found is not None
    assert found.dtype == bool
    assert (found == right).all()
    assert file.stat().st_size < 200


def test_what_is_no_longer_measured_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "test_examples.safetensors"
    kept = KeptExamples(file)
    kept.save(np.ones((1, 8), dtype=bool))
    kept.save(None)
    kept.save(None)
    assert not file.exists()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test_examples.safetensors"
    kept = KeptExamples(file)
    kept.save(np.ones((2, 80), dtype=bool))
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InvalidInput, match=r"is damaged .*: run fedfeast evaluate"):
        kept.load()
