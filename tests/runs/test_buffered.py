"""Runs whose merges take the first answers: stopped and gone on with, planned, refused, counted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY, as_settings

from fedfeast.errors import InvalidInput
from fedfeast.planning import plan_recipe
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.run import Interrupted
from fedfeast.runs.training import Silent

SMALL = [
    *as_settings(TINY),
    *("population.num_clients=8", "training.clients_per_round=4", "training.rounds=8", "evaluation.every_rounds=4"),
    *("checkpoint.every_rounds=2", "simulation.speeds=pareto", "simulation.tail=1.0"),
]
CENTRAL = ["privacy.mechanism=central", "privacy.clip_norm=1.0", "training.cohort=poisson"]
BUFFERED = [*SMALL, "fleet.mode=buffered", "fleet.buffer=2"]


class Stop(Silent):
    """Ends a run after a round: politely, or as a kill would, with the rounds since the last checkpoint lost."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.after, self.error = after, error

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == self.after:
            raise self.error


def rows_of(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.folder.metrics()]


def saved_tensors(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder.checkpoints.folder / "round-000008.safetensors")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.create("digits", tmp_path_factory.mktemp("unbroken") / "run", BUFFERED).train()


@pytest.mark.parametrize("settings", [[], ["server.optimiser=momentum", "server.average=0.5"], ["method.name=fiarse"]])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, unbroken: Run, settings: list[str]) -> None:
    words = [*BUFFERED, *settings, *(["method.num_points=3"] if "method.name=fiarse" in settings else [])]
    whole = Run.create("digits", tmp_path / "whole", words).train() if settings else unbroken
    run = Run.create("digits", tmp_path / "run", words)
    with pytest.raises(RuntimeError):  # nothing is saved then: round 3 is lost with what was asked in it
        run.train(Stop(3, RuntimeError()))
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "run", words).train(Stop(5, KeyboardInterrupt()))
    again = Run.create("digits", tmp_path / "run", words).train()
    assert rows_of(again) == rows_of(whole)
    ours, theirs = (saved_tensors(one) for one in (again, whole))
    assert {name for name, one in ours.items() if not torch.equal(one, theirs[name])} == set()
    assert ours.keys() == theirs.keys()


def test_a_plan_tells_the_clock_to_the_second_and_what_synchronous_rounds_would_take(unbroken: Run) -> None:
    planned = plan_recipe("digits", BUFFERED)["clock"]
    last = unbroken.folder.metrics()[-1]
    assert planned["seconds"] == pytest.approx(last["clock_seconds"], abs=1e-5)
    assert planned["answers"] == 16
    assert planned["synchronous"]["rounds"] == 4
    alone = plan_recipe("digits", [*SMALL, "training.rounds=4"])["clock"]
    assert planned["synchronous"]["seconds"] == alone["seconds"] > planned["seconds"]
    ages = [age for row in unbroken.folder.metrics() for age in row["ages"]]
    assert planned["mean_age"] == pytest.approx(sum(ages) / 16)
    assert unbroken.summary["ages"] == {"answers": 16, "mean": sum(ages) / 16, "oldest": max(ages)}
    assert unbroken.summary["clock_seconds"] == last["clock_seconds"]
    assert "clock" not in plan_recipe("digits", as_settings(TINY))


def test_nobody_is_asked_twice_at_a_time_and_every_value_is_counted_once(unbroken: Run) -> None:
    at_work: set[int] = set()
    for row in unbroken.folder.metrics():
        assert not at_work & set(row["clients"])
        at_work |= set(row["clients"])
        assert len(at_work) == 4
        assert set(row["answered"]) <= at_work
        at_work -= set(row["answered"])
        assert len(row["answered"]) == len(row["ages"]) == 2
    rows = unbroken.folder.metrics()
    sent, returned = (sum(row[key] for row in rows) for key in ("payload_parameters", "returned_parameters"))
    assert unbroken.summary["traffic"]["parameters_both_ways"] == sent + returned
    assert returned < sent  # two are still at work when the last merge is made


def test_a_clock_alone_changes_no_bit(tmp_path: Path) -> None:
    with_clock = Run.create("digits", tmp_path / "clock", SMALL).train()
    plain = [word for word in SMALL if not word.startswith("simulation.")]
    without = Run.create("digits", tmp_path / "plain", plain).train()
    states = [one.folder.checkpoints.load_latest()[0] for one in (with_clock, without)]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0].flat, states[1].flat)
    told = {key for row in rows_of(with_clock) for key in row} - {key for row in rows_of(without) for key in row}
    assert told == {"clock_seconds", "answered"}


def test_private_updates_count_for_those_who_were_asked(tmp_path: Path) -> None:
    words = [*BUFFERED, "privacy.clip_norm=0.1", "training.rounds=3"]
    run = Run.create("digits", tmp_path / "run", words).train()
    asked = [client for row in run.folder.metrics() for client in row["clients"]]
    assert run.summary["privacy"]["participations"] == max(asked.count(client) for client in asked)


def test_speeds_of_a_file_are_kept_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    rows = [f"client-{index:03d},{1e6 if index == 1 else 1e9}" for index in range(8)]
    file.write_text("\n".join(["name,macs_per_second", *rows]) + "\n")
    words = [*(word for word in BUFFERED if not word.startswith("simulation.")), f"simulation.speeds={file}"]
    run = Run.create("digits", tmp_path / "run", [*words, "training.rounds=2"]).train()
    assert (run.folder.path / "inputs" / "simulation.speeds.csv").read_text() == file.read_text()
    file.write_text("name,macs_per_second\nclient-000,1e9\n")
    with pytest.raises(InvalidInput, match=r"has changed since the run in .* began"):
        Run.create("digits", tmp_path / "run", [*words, "training.rounds=2"])
    with pytest.raises(InvalidInput, match=r"has no speed of the client 'client-001'"):
        Run.create("digits", tmp_path / "other", words)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["fleet.buffer=2"], r"fleet.buffer = 2 has no effect with fleet.mode = 'synchronous'"),
        (["fleet.staleness_exponent=1.0"], r"fleet.staleness_exponent = 1.0 has no effect"),
        (["fleet.mode=buffered", "fleet.buffer=11"], r"fleet.buffer = 11 is more than are ever at work"),
        (["fleet.mode=buffered", "fleet.buffer=2", "fleet.least_answers=3"], r"fleet.least_answers = 3 is more than a"),
        (["fleet.mode=buffered", "aggregation.rule=median"], r"aggregation.rule = 'median' ranks a whole cohort's"),
        (["fleet.mode=buffered", "aggregation.rule=trimmed-mean"], r"aggregation.rule = 'trimmed-mean' ranks a whole"),
        (["fleet.mode=buffered", "server.lookahead=0.8"], r"server.lookahead = 0.8 needs answers to the vector ahead"),
        (["fleet.mode=buffered", "wire.up=int8"], r"wire.up = .int8. is told from what a client was last sent"),
        (["fleet.mode=buffered", "wire.up_topk=0.1"], r"wire.up_topk = 0.1 is told from"),
        (["fleet.mode=buffered", "method.name=superfednas"], r"method.name = 'superfednas' gives roles and weights"),
        (["fleet.mode=buffered", "evaluation.by=clients"], r"evaluation.by = 'clients' asks those who are not at work"),
        (["fleet.mode=buffered", "training.cohort=poisson"], r"training.cohort = 'poisson', which central privacy"),
        ([*CENTRAL, "simulation.speeds=equal"], r"simulation.speeds = 'equal' may leave out who is late"),
        (["simulation.tail=1.0"], r"simulation.tail = 1 has no effect with simulation.speeds = none"),
        (["simulation.speeds=a.csv", "simulation.macs_per_second=1e6"], r"simulation.macs_per_second = 1e\+06 has no"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(settings: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_recipe("digits", settings)
