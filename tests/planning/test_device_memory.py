from typing import Any

import pytest
import torch
from guessed_protocol import GUESSED

from fedfeast.engines.devices import MEMORY_VARIABLE
from fedfeast.errors import InvalidInput
from fedfeast.planning.device_memory import _context, least_memory, plan_memory
from fedfeast.planning.outline import outline
from fedfeast.presentation.plan_tables import _memory_lines
from fedfeast.recipes import load_recipe
from fedfeast.units import GIB

# Measured for 10 clients of cifar100-paper as it was guessed, three lanes each: what a H200 counts for the process.
PAPER_GIB = 25.2
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def planned(recipe: str = "cifar100-paper", **settings: Any) -> dict[str, Any]:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    # What was measured trains full batches without momentum.
    memory = plan_memory(outline(load_recipe(recipe, {**GUESSED, **given})), 45_000)
    assert memory is not None
    return memory


def test_the_papers_round_takes_what_was_measured() -> None:
    memory = planned()
    assert memory["clients_at_once"] == 10
    assert memory["gib"] == pytest.approx(PAPER_GIB, rel=0.05)
    assert 3 < memory["least_gib"] < 6


def test_a_plan_counts_the_partial_gradients_of_the_kernels_that_will_run() -> None:
    built = outline(load_recipe("cifar100-paper"))
    rounded = _context(built.recipe, built.method)
    assert rounded.in_cuda
    whole = _context(load_recipe("cifar100-paper", {"engine.precision": "float32"}), built.method)
    assert not whole.in_cuda
    assert rounded.gradient_size < whole.gradient_size


def test_smaller_cards_take_fewer_clients_at_once() -> None:
    memory = planned()
    assert [card["gib"] for card in memory["cards"]] == [12, 16, 24]
    at_once = [card["clients"] * card["passes_at_once"] for card in memory["cards"]]
    assert 0 < at_once[0] < at_once[1] < at_once[2] < 30
    assert memory["present"] is None or memory["present"]["clients"] >= 1


def test_a_limit_says_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(engine__memory_gib=8)["present"]["clients"] >= 2
    monkeypatch.setenv(MEMORY_VARIABLE, "2.5")
    memory = planned(engine__memory_gib=8)
    assert memory["present"] == {"gib": 2.5, "clients": 0, "passes_at_once": 0}
    assert _memory_lines(memory)["clients (passes of each) at once within 2.5 GiB"].startswith("none: one takes 4.")


def test_half_the_batch_takes_less_and_more_precision_takes_more() -> None:
    whole, half, double = planned(), planned(training__batch_size=32), planned(engine__precision="float64")
    assert half["gib"] < 0.9 * whole["gib"]
    assert double["gib"] > 2 * whole["gib"]


def test_networks_without_kernels_are_estimated_too() -> None:
    memory = planned(method__name="heterofl")
    assert 1 < memory["least_gib"] < 3
    assert all(card["clients"] == 10 for card in memory["cards"]), "one pass a step through a small network"


def test_the_eager_engine_is_not_estimated_but_limits_are_checked() -> None:
    assert plan_memory(outline(load_recipe("digits", {"engine.name": "eager"})), 1000) is None
    with pytest.raises(InvalidInput, match=r"engine.memory_gib = -3"):
        load_recipe("digits", {"engine.memory_gib": -3})


def test_what_a_server_keeps_is_counted() -> None:
    vector = outline(load_recipe("cifar100-paper")).method.network.layout.size * 4 / GIB
    plain, ahead = planned(), planned(server__lookahead=0.8, server__average=0.99)
    assert ahead["gib"] - plain["gib"] == pytest.approx(4 * vector)
    digits = [least_memory(load_recipe("digits", settings), CPU) for settings in ([], ["server.optimiser=adam"])]
    size = outline(load_recipe("digits")).method.network.layout.size
    assert digits[1] - digits[0] == pytest.approx(6 * size * 4 / GIB)


@pytest.mark.parametrize("method", ["feast", "heterofl"])
def test_a_run_needs_at_least_what_the_plan_says_for_one_client(method: str) -> None:
    settings = {"method.name": method, "engine.name": "graphs"}
    memory = plan_memory(outline(load_recipe("cifar100-paper", settings)), 60_000)
    assert memory is not None
    assert least_memory(load_recipe("cifar100-paper", settings), CUDA) == pytest.approx(memory["least_gib"], rel=1e-6)


def test_on_the_eager_engine_a_run_needs_its_process_its_examples_and_its_vectors() -> None:
    digits = least_memory(load_recipe("digits"), CPU)
    assert 0.4 < digits < 0.43
    synthetic = least_memory(load_recipe("digits", {"data.name": "synthetic"}), CPU)
    assert synthetic - digits == pytest.approx((66_000 - 1_797) * 64 / GIB)
    on_a_card = least_memory(load_recipe("digits", {"engine.name": "eager"}), CUDA)
    assert on_a_card - digits == pytest.approx(0.3)


@pytest.mark.parametrize("engine", ["eager", "graphs"])
def test_a_run_needs_room_for_a_mini_batch_in_its_precision(engine: str) -> None:
    def need(batch_size: int, precision: str) -> float:
        settings = {"training.batch_size": batch_size, "engine.precision": precision, "engine.name": engine}
        return least_memory(load_recipe("cifar100-paper", settings), CUDA)

    half, whole = ("float32", "float64") if engine == "eager" else ("bfloat16", "float32")
    one, two = (need(128, precision) - need(64, precision) for precision in (half, whole))
    assert two == pytest.approx(2 * one, rel=0.1)
    assert 0.3 < one < 3.0
