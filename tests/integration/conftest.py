"""Fleets of real processes on this machine."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

APP = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def wait_for(condition: Callable[[], bool], seconds: float, what: str, log: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} took longer than {seconds} s:\n{log()[-6000:]}"
        time.sleep(0.2)


AUGMENTED = {"augmentation.randaugment": [2, 6], "augmentation.crop_padding": 1, "augmentation.mixing": "alternate"}
SHORT_ON_CUDA: dict[str, Any] = {
    **AUGMENTED,
    "training.rounds": 4,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 2,
    "engine.device": "cuda",
}
