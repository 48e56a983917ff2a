import math
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import CACHE_FILE, TINY

from fedfeast.data import load_dataset
from fedfeast.engines import EagerEngine
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Validation
from fedfeast.federation import (
    Client,
    Collected,
    Engine,
    RoundOrder,
    TooFewAnswers,
    learning_rate,
    sample_cohort_as_authors,
)
from fedfeast.planning import plan_recipe
from fedfeast.population import Population
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.assembly import Federation
from fedfeast.runs.training import Silent, SimulatedClients
from fedfeast.whole_files import FullDisk

SHORT = {
    **TINY,
    "training.rounds": 4,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 2,
    "checkpoint.every_rounds": 2,
}


def final_weights(run: Run) -> torch.Tensor:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    assert state.finished_rounds == run.recipe.training.rounds
    return state.flat


def test_clients_of_whom_nobody_has_a_batch_are_refused_before_training(tmp_path: Path) -> None:
    settings = {**SHORT, "training.batch_size": 1000, "training.least_distinct": 1000}
    run = Run.create("digits", tmp_path / "run", settings)
    most = max(run.federation.partition.shards.sizes)
    sentence = (
        f"no client has a batch to train on: .*least_distinct = 1000, .* 40 clients has {most} .* to {most} or less"
    )
    with pytest.raises(InvalidInput, match=sentence):
        run.train()
    assert not run.folder.has_finished_rounds()


def test_clients_that_never_train_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**SHORT, "training.least_distinct": 3}
    idle = plan_recipe("digits", settings)["data"]["batches"]["clients_without"]
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "run", settings).train(StopAfter(2))
    Run.open(tmp_path / "run").train()
    warnings = [record.getMessage() for record in caplog.records if "never train" in record.getMessage()]
    assert warnings == [
        f"{idle} of 40 clients never train: they hold too few examples for a batch (training.least_distinct = 3)"
    ]


def test_sizes_of_one_price_are_told_in_the_order_of_their_cache(tmp_path: Path) -> None:
    """What chooses the round is the later one alone, and the earlier one is measured after it."""
    header, *rows = CACHE_FILE.read_text().splitlines()
    prices = (112_288, 200_000, 200_000, 529_648)
    priced = [f"{header},price", *(f"{row},{price}" for row, price in zip(rows, prices, strict=True))]
    (tmp_path / "cache.csv").write_text("\n".join(priced))
    ties = {"variants.cache": str(tmp_path / "cache.csv"), "variants.ties": "keep", "evaluation.sizes": "all"}
    run = Run.create("digits", tmp_path / "run", {**SHORT, **ties}).train()
    names = [point.name for point in run.federation.method.operating_points()]
    assert len(names) == 4
    for row in run.folder.metrics():
        if "validation_sizes" in row:
            assert [size["name"] for size in row["validation_sizes"]] == names


class StopAfter(Silent):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == self.rounds:
            raise KeyboardInterrupt


def test_the_cosine_starts_at_the_rate_and_ends_near_zero() -> None:
    assert learning_rate(0.1, "cosine", 0, 4000) == 0.1
    assert learning_rate(0.1, "cosine", 2000, 4000) == pytest.approx(0.05)
    assert learning_rate(0.1, "cosine", 3999, 4000) < 1e-6
    assert learning_rate(0.1, "constant", 3999, 4000) == 0.1


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_a_warm_up_rises_from_a_tenth_and_leaves_the_rest_as_it_is(schedule: str) -> None:
    assert learning_rate(0.1, schedule, 0, 1000, 50) == pytest.approx(0.01)
    rates = [learning_rate(0.1, schedule, index, 1000, 50) for index in range(51)]
    assert rates == sorted(rates)
    assert learning_rate(0.1, schedule, 25, 1000, 50) == 0.55 * learning_rate(0.1, schedule, 25, 1000)
    assert rates[50] == learning_rate(0.1, schedule, 50, 1000)


def test_a_run_leaves_a_full_record(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT).train()
    rows = run.folder.metrics()
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert ["validation_score" in row for row in rows] == [False, True, False, True]
    assert all(len(row["clients"]) == 3 and row["payload_parameters"] > 0 for row in rows)
    summary = run.summary
    assert summary["validation_score"] == max(row.get("validation_score", 0) for row in rows)
    assert summary["traffic"]["reduction"] > 1
    assert summary["population_score"] == pytest.approx(run.population_score)
    assert len(summary["curve"]) == 4
    assert (run.folder.path / "clients.csv").is_file()


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", SHORT).train()
    with pytest.raises(Interrupted, match="after round 3"):
        Run.create("digits", tmp_path / "broken", SHORT).train(StopAfter(3))
    broken = Run.create("digits", tmp_path / "broken", SHORT).train()
    assert torch.equal(final_weights(unbroken), final_weights(broken))
    assert broken.curve == unbroken.curve
    assert [row["losses"] for row in broken.folder.metrics()] == [row["losses"] for row in unbroken.folder.metrics()]


def test_a_run_by_the_authors_rules_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    settings = {
        **SHORT,
        **{"population.source": "authors", "population.num_clients": 12, "population.least_macs": 4e4},
        **{"partition.rule": "authors", "partition.loaded": "as-loaded", "data.split_rule": "authors"},
        **{"training.cohort": "authors", "augmentation.mixing": "coin", "augmentation.mixup_beta": 0.4},
        **{"augmentation.crop_padding": 2, "augmentation.crop_fill": "reflect"},
    }
    unbroken = Run.create("digits", tmp_path / "unbroken", settings).train()
    federation = unbroken.federation
    budgets = federation.population.budgets_macs
    assert budgets.min() == federation.method.least_macs > federation.population.drawn_macs.min()  # lifted
    assert len(federation.participants) == 12
    assert [row["clients"] for row in unbroken.folder.metrics()] == [
        sample_cohort_as_authors(range(12), 3, round_index) for round_index in range(4)
    ]
    partition = unbroken.summary["partition"]
    assert partition["trained_validation_examples"] > 50
    # As loaded, a shard's positions are those of the data set itself.
    raw, shard = load_dataset("digits").train, federation.examples.shards[3]
    assert torch.equal(federation.examples.of_client(3).inputs, raw.inputs[torch.from_numpy(shard)])
    with pytest.raises(Interrupted, match="after round 3"):
        Run.create("digits", tmp_path / "broken", settings).train(StopAfter(3))
    broken = Run.create(str(tmp_path / "broken" / "recipe.toml"), tmp_path / "broken").train()
    assert torch.equal(final_weights(unbroken), final_weights(broken))


def test_a_run_by_files_goes_on_without_them(tmp_path: Path) -> None:
    shards, split = tmp_path / "shards.npz", tmp_path / "split.csv"
    order = np.random.default_rng(0).permutation(1442)
    np.savez(shards, indices=order[:1300], offsets=[0, 40, 300, 700, 1300])
    held = ["validation"] * 100 + ["calibration"] * 40
    split.write_text(
        "part,index\n" + "".join(f"{part},{one}\n" for part, one in zip(held, order[1300:1440], strict=True))
    )
    settings = {
        **SHORT,
        **{"population.num_clients": 4, "partition.file": str(shards), "partition.unused": "leave"},
        "data.split_file": str(split),
    }
    unbroken = Run.create("digits", tmp_path / "unbroken", settings).train()
    assert unbroken.summary["partition"]["unused_examples"] == 2
    raw = load_dataset("digits").train
    held_by_first = unbroken.federation.examples.of_client(0)
    assert torch.equal(held_by_first.inputs, raw.inputs[torch.from_numpy(order[:40])])
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "broken", settings).train(StopAfter(3))
    shards.unlink()
    split.unlink()
    broken = Run.open(tmp_path / "broken").train()
    assert torch.equal(final_weights(unbroken), final_weights(broken))


def test_a_damaged_checkpoint_costs_rounds_but_not_the_result(tmp_path: Path) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", SHORT).train()
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "broken", SHORT).train(StopAfter(3))
    newest = tmp_path / "broken" / "checkpoints" / "round-000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    told: list[tuple[int, list[str]]] = []

    class Listener(Silent):
        def on_start(self, finished_rounds: int, total_rounds: int, damaged: Any) -> None:
            told.append((finished_rounds, list(damaged)))

    broken = Run.create("digits", tmp_path / "broken", SHORT).train(Listener())
    assert told == [(2, ["round-000003.safetensors"])]
    assert torch.equal(final_weights(unbroken), final_weights(broken))
    assert [row["round"] for row in broken.folder.metrics()] == [1, 2, 3, 4]


def test_an_early_evaluation_does_not_stand_for_the_finished_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "run", SHORT).train(StopAfter(2))
    Run.open(tmp_path / "run").evaluate()
    assert Run.open(tmp_path / "run").summary["finished_rounds"] == 2
    finished = Run.create("digits", tmp_path / "run", SHORT).train()
    assert finished.summary["finished_rounds"] == 4
    assert finished.summary["traffic"]["planned"]["per_client_reduction"]["max"] > 5


def test_a_fleets_file_may_change_after_the_start(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("budget_macs\n2e5\n6e6\n1e6\n")
    settings = {**SHORT, "population.source": "file", "population.file": str(fleet)}
    run = Run.create("digits", tmp_path / "run", settings).train()
    fleet.write_text("budget_macs\n2e5\n")
    assert len(Run.open(tmp_path / "run").evaluate().points) == 4
    assert Run.open(tmp_path / "run").summary["clients"] == 3
    assert run.folder.budgets_macs().tolist() == [2e5, 6e6, 1e6]


def test_divergence_is_said_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    settings = {**SHORT, "training.learning_rate": 1e30, "training.schedule": "constant"}
    with pytest.raises(InvalidInput, match=r"diverged in round 1 .* lower training.learning_rate = 1e\+30"):
        Run.create("digits", tmp_path / "run", settings).train()


def test_a_methods_own_rate_goes_through_the_schedule(tmp_path: Path) -> None:
    own = {"method.name": "fiarse", "method.learning_rate": 0.05, "method.clip_norm": math.inf}
    settings = {**SHORT, **own, "training.rounds": 2, "training.momentum": 0.9, "training.last_batch": "short"}
    run = Run.create("digits", tmp_path / "run", settings).train()
    assert [row["learning_rate"] for row in run.folder.metrics()] == pytest.approx([0.05, 0.025])
    again = Run.open(tmp_path / "run").recipe
    assert (again.training.momentum, again.training.last_batch) == (0.9, "short")
    assert again.settings()["method.clip_norm"] == math.inf


def test_float64_is_a_precision_of_the_engine(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", {**SHORT, "training.rounds": 1, "engine.precision": "float64"}).train()
    assert final_weights(run).dtype == torch.float64


class FailingOnce(Engine):
    """Has too few answers at the first try of every round, and something to note at the second."""

    def __init__(self, inner: Engine) -> None:
        self.method, self._inner, self._tried = inner.method, inner, set[int]()

    def collect(self, order: RoundOrder) -> Collected:
        if order.round_index not in self._tried:
            self._tried.add(order.round_index)
            raise TooFewAnswers
        collected = self._inner.collect(order)
        return replace(collected, notes={"answered": [assignment.client.index for assignment in order.assignments]})


class FewerAndFewer:
    """A source of clients that a client leaves at every look."""

    def engine(self, federation: Federation) -> Engine:
        assert isinstance(federation.engine(), EagerEngine)
        return FailingOnce(federation.engine())

    def available(self, federation: Federation, round_index: int) -> Federation:
        return replace(federation, participants=federation.participants[:-1])

    def validation(self, federation: Federation) -> Validation:
        return federation.validation


def test_a_round_with_too_few_answers_is_tried_again_with_who_is_there(tmp_path: Path) -> None:
    settings = {**SHORT, "training.rounds": 2, "training.clients_per_round": 40}
    run = Run.create("digits", tmp_path / "run", settings).train(client_source=FewerAndFewer())
    rows = run.folder.metrics()
    assert [row["attempts"] for row in rows] == [2, 2]
    assert [len(row["clients"]) for row in rows] == [38, 36]
    assert rows[0]["answered"] == rows[0]["clients"]


class Poorer(SimulatedClients):
    def available(self, federation: Federation, round_index: int) -> Federation:
        return replace(federation, population=Population(np.full(40, 9.0)))


def test_a_round_that_nobody_can_be_served_by_is_a_sentence_of_budgets(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no network can be validated: the largest budget, 9 MACs, affords none"):
        Run.create("digits", tmp_path / "run", SHORT).train(client_source=Poorer())


class Listening(Engine):
    """Remembers whom it was told of ahead, and who came."""

    prepares_ahead = True

    def __init__(self, inner: Engine) -> None:
        self.method, self._inner = inner.method, inner
        self.told, self.came = list[list[Client]](), list[list[Client]]()

    def collect(self, order: RoundOrder) -> Collected:
        self.told.append(list(order.ahead))
        self.came.append([one.client for one in order.assignments])
        return self._inner.collect(order)


class Heard(SimulatedClients):
    def engine(self, federation: Federation) -> Engine:
        self.listening = Listening(federation.engine())
        return self.listening


def test_an_engine_that_prepares_ahead_is_told_who_comes_next(tmp_path: Path) -> None:
    heard = Heard()
    Run.create("digits", tmp_path / "run", SHORT).train(client_source=heard)
    told, came = heard.listening.told, heard.listening.came
    assert len(came) == 4
    assert told == [*came[1:], []]


class OutOfMemory(Engine):
    """Runs one round, and then out of memory."""

    def __init__(self, inner: Engine) -> None:
        self.method, self._inner = inner.method, inner

    def collect(self, order: RoundOrder) -> Collected:
        if order.round_index == 1:
            raise torch.OutOfMemoryError
        return self._inner.collect(order)


class Cramped(SimulatedClients):
    def engine(self, federation: Federation) -> Engine:
        return OutOfMemory(federation.engine())


def test_a_device_without_memory_is_a_sentence_and_costs_no_finished_round(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT)
    with pytest.raises(InvalidInput, match=r"memory gave out in round 2: lower training.batch_size = 32"):
        run.train(client_source=Cramped())
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    assert state.finished_rounds == 1


class FullAfter(Silent):
    """Lets the disk be full from a round on: no file grows beyond what a line of metrics needs."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.before = rounds, resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == self.rounds:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, self.before[1]))


@pytest.mark.parametrize("rounds", [2, 4])
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path, rounds: int) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", SHORT).train()
    run, full = Run.create("digits", tmp_path / "run", SHORT), FullAfter(rounds)
    sentence = r"the disk of .*run is full \(File too large\): free some of it, then train on with .*is lost\.$"
    try:
        with pytest.raises(FullDisk, match=sentence):
            run.train(full)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, full.before)
    state, damaged = run.folder.checkpoints.load_latest()
    assert ((state.finished_rounds if state else 0), damaged) == (rounds - 2, [])
    assert not list(run.folder.path.rglob("*.partial"))
    assert torch.equal(final_weights(Run.create("digits", tmp_path / "run", SHORT).train()), final_weights(unbroken))


def test_a_line_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    folder, before = Run.create("digits", tmp_path / "run", SHORT).folder, resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.append_released(0, [1, 2])
    content = (folder.path / "released.jsonl").read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) + 10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            folder.append_released(1, [3, 4])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (folder.path / "released.jsonl").read_bytes() == content


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (b'{"round": 5, "cli', None),
        (b'{"round": 5, "clients": [1]}', None),
        (b'{"round": 5}\n', r"line 3 of .*released.jsonl is damaged \(clients\)"),
        (b"\x00\n", r"line 3 of .*released.jsonl is damaged \(it is no JSON\)"),
    ],
)
def test_who_was_asked_is_mended_or_refused_at_the_start(tmp_path: Path, tail: bytes, sentence: str | None) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT)
    with pytest.raises(Interrupted):
        run.train(StopAfter(2))
    for round_index in range(2):
        run.folder.append_released(round_index, [0, round_index])
    whole = (run.folder.path / "released.jsonl").read_bytes()
    (run.folder.path / "released.jsonl").write_bytes(whole + tail)
    if sentence is None:
        with pytest.raises(Interrupted):
            Run.open(run.folder.path).train(StopAfter(3))
        assert (run.folder.path / "released.jsonl").read_bytes() == whole
        return
    with pytest.raises(InvalidInput, match=sentence):
        Run.open(run.folder.path).train()
    assert len(run.folder.metrics()) == 2, "nothing was trained"
    first, second = whole.splitlines(keepends=True)
    for left, lost in ((whole[:-5], 2), (first, 2), (second, 1), (b"", 1)):  # in a line, and between two
        (run.folder.path / "released.jsonl").write_bytes(left)
        with pytest.raises(InvalidInput, match=f"is cut off: round {lost} is missing in it, whose privacy was spent"):
            Run.open(run.folder.path).train()


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (lambda lines: [], "lacks round 1, of the 4 that its checkpoint has: restore it"),
        (lambda lines: lines[:2], "lacks round 3, of the 4 that its checkpoint has: restore it"),
        (lambda lines: [*lines[:1], *lines[2:]], "lacks round 2, of the 4"),
        (lambda lines: [*lines, lines[-1]], "has rounds twice or in another order"),
    ],
)
def test_lost_rounds_replace_no_summary(tmp_path: Path, kept: Callable[[list[str]], list[str]], sentence: str) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT).train()
    summary = (run.folder.path / "summary.json").read_bytes()
    metrics = run.folder.path / "metrics.jsonl"
    metrics.write_text("".join(kept(metrics.read_text().splitlines(keepends=True))))
    with pytest.raises(InvalidInput, match=sentence):
        Run.open(run.folder.path).evaluate()
    metrics.unlink()
    with pytest.raises(InvalidInput, match="lacks round 1"):
        Run.open(run.folder.path).evaluate()
    assert (run.folder.path / "summary.json").read_bytes() == summary


def test_a_cut_list_of_private_updates_replaces_no_summary(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT).train()
    summary = (run.folder.path / "summary.json").read_bytes()
    run.folder.append_released(0, [0, 1])
    with pytest.raises(InvalidInput, match="is cut off: round 2 is missing in it, whose privacy was spent"):
        Run.open(run.folder.path).evaluate()
    assert (run.folder.path / "summary.json").read_bytes() == summary
