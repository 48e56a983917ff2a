"""What a recipe says reaches the part it speaks of, and what training finds reaches the summary."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import TINY
from torch import Tensor

from fedfeast.data import Augmentation, Examples, Mixing, count_steps, load_dataset
from fedfeast.data.tasks import Metric
from fedfeast.evaluation import Curve, CurvePoint, Evaluator
from fedfeast.federation import Assignment, Client, Method, OperatingPoint, State
from fedfeast.methods import METHODS, Feast, FedAvg
from fedfeast.population import alpha_data_from_effective, partition_by_budget, zipf_population
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_network
from fedfeast.recipes.splitting import deal_server_examples
from fedfeast.routing import envelope_of
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.runs.checkpoint import CheckpointFolder, TrainingState
from fedfeast.runs.training import Silent
from fedfeast.variants import read_cache

SHORT: dict[str, Any] = {
    **TINY,
    "training.rounds": 3,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 1,
    "checkpoint.every_rounds": 1,
}
ONE_CLIENT: dict[str, Any] = {
    **SHORT,
    "training.clients_per_round": 1,
    "evaluation.every_rounds": 3,
    "engine.precision": "float64",
}


def build(settings: dict[str, Any]) -> Federation:
    return assemble(load_recipe("digits", settings))


def train_recorded(run: Run) -> list[TrainingState]:
    """Train and return the state of every round; the run must save after each."""
    states: list[TrainingState] = []
    save = CheckpointFolder.save

    def record(folder: CheckpointFolder, state: TrainingState) -> None:
        states.append(state)
        save(folder, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "save", record)
        run.train()
    assert [state.finished_rounds for state in states] == list(range(1, run.recipe.training.rounds + 1))
    return states


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[TrainingState]]:
    run = Run.create("digits", tmp_path_factory.mktemp("runs") / "run", SHORT)
    return run, train_recorded(run)


def test_the_population_follows_its_section() -> None:
    drawn = {"exponent": 0.3, "num_ranks": 7, "least_macs": 2e5, "greatest_macs": 8e6}
    federation = build({"seed": 3, "population.num_clients": 30} | {f"population.{k}": v for k, v in drawn.items()})
    expected = zipf_population(30, named_generator(3, "population"), **drawn)  # type: ignore[arg-type]
    assert federation.population.budgets_macs.tolist() == expected.budgets_macs.tolist()
    ranks = (federation.population.budgets_macs - 2e5) / (8e6 - 2e5) * 6
    np.testing.assert_allclose(ranks, ranks.round(), atol=1e-9)


def test_a_flatter_exponent_gives_larger_budgets() -> None:
    flat, steep = (build({"population.exponent": exponent}).population.budgets_macs for exponent in (0.0, 3.0))
    assert np.median(flat) > 10 * np.median(steep)


@pytest.mark.parametrize(("gamma", "cap"), [(1.0, 1e6), (0.5, 5e6), (2.0, 3e6), (0.0, 5e6)])
def test_data_shares_follow_gamma_and_the_cap(gamma: float, cap: float) -> None:
    federation = build({"population.gamma": gamma, "population.cap_macs": cap})
    weights = np.minimum(federation.population.budgets_macs, cap) ** gamma
    np.testing.assert_allclose(federation.partition.target_shares, weights / weights.sum())


def test_the_partition_follows_its_section() -> None:
    labels = build({}).examples.pool.labels.numpy()
    alpha_from_effective = alpha_data_from_effective(2.5, len(labels), 10, 40)
    for settings, alpha_data, min_shard in (
        ({"partition.alpha_eff": 2.5}, alpha_from_effective, 1),
        ({"partition": {"alpha_data": 0.07}}, 0.07, 1),
        ({"partition.min_shard": 12}, None, 12),
    ):
        federation = build(settings)
        assert federation.partition.shards.sizes.min() >= min_shard
        alpha_data = alpha_data or alpha_data_from_effective(0.45, len(labels), 10, 40)
        expected = partition_by_budget(
            labels,
            federation.partition.target_shares,
            alpha_data,
            named_generator(0, "partition"),
            min_shard=min_shard,
        )
        assert federation.partition.shards.order.tolist() == expected.shards.order.tolist()
        assert federation.partition.shards.sizes.tolist() == expected.shards.sizes.tolist()
    assert build({}).partition.shards.sizes.min() < 12


def test_a_larger_alpha_gives_clients_more_alike() -> None:
    def classes_held(alpha: float) -> float:
        federation = build({"partition": {"alpha_data": alpha}})
        return float(np.mean([len(set(federation.examples.of_client(i).labels.tolist())) for i in range(40)]))

    assert classes_held(1000.0) > 2 * classes_held(0.001)


def test_preparation_follows_training_and_augmentation() -> None:
    settings = {
        "training.batch_size": 6,
        "training.local_epochs": 3,
        "augmentation.crop_padding": 2,
        "augmentation.flip": True,
        "augmentation.randaugment": [1, 9],
        "augmentation.mixing": "alternate",
        "augmentation.mixup_beta": 0.3,
        "augmentation.cutmix_beta": 0.7,
    }
    preparation = build(settings).preparation
    assert (preparation.batch_size, preparation.local_epochs) == (6, 3)
    assert preparation.augmentation == Augmentation(crop_padding=2, flip=True, randaugment=(1, 9))
    assert preparation.mixing == Mixing(mixup_beta=0.3, cutmix_beta=0.7)
    other = build({**settings, "augmentation.crop_fill": "reflect", "augmentation.mixing": "coin"}).preparation
    assert other.augmentation == Augmentation(2, True, (1, 9), "reflect")
    assert other.mixing == Mixing(0.3, 0.7, "coin")
    plain = build({**settings, "augmentation.flip": False, "augmentation.mixing": "off"}).preparation
    assert plain.augmentation == Augmentation(crop_padding=2, flip=False, randaugment=(1, 9))
    assert plain.mixing is None


def test_steps_follow_batch_size_and_local_epochs(tmp_path: Path) -> None:
    settings = {**SHORT, "training.rounds": 2, "training.batch_size": 12, "training.local_epochs": 2}
    run = Run.create("digits", tmp_path / "run", settings).train()
    sizes = run.federation.partition.shards.sizes
    for row in run.folder.metrics():
        assert row["steps"] == sum(count_steps(int(sizes[client]), 12, 2) for client in row["clients"])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_clipped_step_is_as_long_as_rate_and_clip_norm_say(tmp_path: Path, schedule: str) -> None:
    settings = {
        **ONE_CLIENT,
        "training.batch_size": 512,  # more than anybody holds: one step a round
        "training.learning_rate": 0.3,
        "training.schedule": schedule,
        "training.weight_decay": 0.0,
        "training.clip_norm": 0.01,
    }
    run = Run.create("digits", tmp_path / "run", settings)
    states = train_recorded(run)
    factors = [1.0 if schedule == "constant" else 0.5 * (1 + math.cos(math.pi * i / 3)) for i in range(3)]
    rates = [row["learning_rate"] for row in run.folder.metrics()]
    assert rates == pytest.approx([0.3 * factor for factor in factors])
    before = run.federation.initial_weights()
    for state, rate in zip(states, rates, strict=True):
        assert float(torch.linalg.vector_norm(state.flat - before)) == pytest.approx(rate * 0.01, rel=1e-4)
        before = state.flat


def test_weights_decay_as_the_recipe_says(tmp_path: Path) -> None:
    settings = {
        **ONE_CLIENT,
        "training.rounds": 2,
        "training.schedule": "constant",
        "training.weight_decay": 0.05,
        "training.clip_norm": 1e-12,  # no gradient to speak of
    }
    run = Run.create("digits", tmp_path / "run", settings)
    states = train_recorded(run)
    federation, flat = run.federation, run.federation.initial_weights()
    assert isinstance(federation.method, Feast)
    for state, row in zip(states, run.folder.metrics(), strict=True):
        slices = federation.method.assign(federation.clients[row["clients"][0]]).slice_map
        expected = flat.clone()
        slices.scatter_(expected, slices.gather(flat) * (1 - 0.2 * 0.05) ** row["steps"])
        torch.testing.assert_close(state.flat, expected, rtol=0, atol=1e-9)
        flat = state.flat


def accuracy_by_hand(federation: Federation, flat: Tensor, point: OperatingPoint, tested: Examples) -> float:
    dataset, recipe = load_dataset("digits", None), federation.recipe
    split = deal_server_examples(recipe, dataset.train.labels.numpy())
    calibration = dataset.train.select(torch.from_numpy(split.calibration))
    normalisation = federation.preparation.normalisation
    deployed = federation.method.deploy(flat, point)
    return Evaluator(calibration, tested, normalisation).figures(deployed)["accuracy"]


def curve_by_hand(federation: Federation, flat: Tensor, tested: Examples) -> Curve:
    return Curve(
        tuple(
            CurvePoint(
                point.name, point.macs, point.parameters, accuracy, {"accuracy": accuracy}, examples=len(tested.labels)
            )
            for point in federation.method.operating_points()
            for accuracy in [accuracy_by_hand(federation, flat, point, tested)]
        )
    )


def score_by_hand(federation: Federation, flat: Tensor, tested: Examples) -> float:
    points = curve_by_hand(federation, flat, tested).points
    served = [
        max((point for point in points if point.macs <= client.budget_macs), key=lambda point: point.macs)
        for client in federation.clients
    ]
    return float(np.mean([point.accuracy for point in served]))


def test_rounds_are_scored_on_the_validation_examples(recorded: tuple[Run, list[TrainingState]]) -> None:
    run, states = recorded
    dataset = load_dataset("digits", None)
    split = deal_server_examples(run.recipe, dataset.train.labels.numpy())
    validation = dataset.train.select(torch.from_numpy(split.validation))
    assert (len(split.validation), len(split.calibration)) == (100, 60)
    measured = [row["validation_score"] for row in run.folder.metrics()]
    assert measured == pytest.approx([score_by_hand(run.federation, state.flat, validation) for state in states])
    on_test = [score_by_hand(run.federation, state.flat, dataset.test) for state in states]
    assert measured != pytest.approx(on_test), "the two sets must tell the difference"


def test_the_best_so_far_goes_along_with_its_own_weights(recorded: tuple[Run, list[TrainingState]]) -> None:
    run, states = recorded
    scores = [row["validation_score"] for row in run.folder.metrics()]
    for finished, state in enumerate(states, start=1):
        assert state.best is not None
        assert state.best.score == max(scores[:finished])
        assert state.best.finished_rounds == scores.index(state.best.score) + 1
        assert torch.equal(state.best.flat, states[state.best.finished_rounds - 1].flat)


@dataclass(frozen=True, eq=False)
class Watched(Evaluator):
    """Notes every use; gives the scripted accuracies, one a use, while there are any."""

    name: str = ""
    uses: list[str] = field(default_factory=list)
    scripted: Iterator[float] = field(default_factory=lambda: iter(()))

    def curve(
        self,
        method: Method,
        flat: Tensor,
        points: Sequence[OperatingPoint],
        on_point: Callable[[OperatingPoint], None] = lambda point: None,
    ) -> Curve:
        accuracy = next(self.scripted, None)
        if accuracy is None:
            return super().curve(method, flat, points, on_point)
        self.uses.append(self.name)
        return Curve(tuple(CurvePoint(point.name, point.macs, point.parameters, accuracy) for point in points))

    def by_client(self, by_example: Tensor) -> Tensor:
        if self.uses[-1:] != [self.name]:  # one use measures several points
            self.uses.append(self.name)
        return super().by_client(by_example)


def by_the_server(federation: Federation) -> Evaluator:
    assert isinstance(federation.validation, Evaluator)
    return federation.validation


def watched(evaluator: Evaluator, name: str, uses: list[str], scripted: Sequence[float] = ()) -> Watched:
    parts = (evaluator.calibration, evaluator.test, evaluator.normalisation)
    return Watched(*parts, name=name, uses=uses, scripted=iter(scripted))


def test_only_a_better_score_is_best_and_the_test_curve_is_of_the_best_weights(tmp_path: Path) -> None:
    run, uses = Run.create("digits", tmp_path / "run", {**SHORT, "training.rounds": 4}), list[str]()
    plain = run.federation
    run.federation = replace(
        plain,
        validation=watched(by_the_server(plain), "validation", uses, (0.25, 0.75, 0.5, 0.75)),
        tests={"test": watched(plain.test, "test", uses)},
    )
    states = train_recorded(run)
    assert uses == ["validation"] * 4 + ["test"], "the test set is looked at once, when all is chosen"
    bests = [(state.best.finished_rounds, state.best.score) for state in states if state.best]
    assert bests == [(1, 0.25), (2, 0.75), (2, 0.75), (2, 0.75)]
    assert run.summary["best_round"] == 2
    assert run.summary["validation_score"] == 0.75

    tested = load_dataset("digits", None).test
    assert run.curve == curve_by_hand(plain, states[1].flat, tested)
    assert run.curve != curve_by_hand(plain, states[3].flat, tested), "the last weights must tell the difference"
    assert Run.open(run.folder.path).evaluate() == run.curve


def test_the_best_score_may_be_the_least(tmp_path: Path) -> None:
    run, uses = Run.create("digits", tmp_path / "run", {**SHORT, "training.rounds": 3}), list[str]()
    errors = watched(by_the_server(run.federation), "validation", uses, (3.0, 2.0, 2.5, 2.0))
    less_is_better = Metric("accuracy", more_is_better=False)
    run.federation = replace(run.federation, validation=replace(errors, scored_by=less_is_better))
    states = train_recorded(run)
    bests = [(state.best.finished_rounds, state.best.score) for state in states if state.best]
    assert bests == [(1, 3.0), (2, 2.0), (2, 2.0)]


def test_cohorts_are_drawn_from_the_participants_alone(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", {**SHORT, "method": {"name": "fedavg", "max_macs": 4e5}}).train()
    federation = run.federation
    assert isinstance(federation.method, FedAvg)
    budgets, least = federation.population.budgets_macs, federation.method.variant.macs
    assert 3e5 < least <= 4e5
    assert 0 < (budgets < least).sum() < 40
    sampled = [client for row in run.folder.metrics() for client in row["clients"]]
    assert len(sampled) == 9
    assert all(budgets[client] >= least for client in sampled)


@dataclass(frozen=True)
class Counting(Feast):
    """Feast that counts its rounds in its memory."""

    def initial_state(self) -> State:
        return {"rounds": torch.zeros(1, dtype=torch.int64)}

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        assignments, _ = super().plan_round(state, flat, cohort, round_index, generator)
        assert int(state["rounds"]) == round_index, "the memory of the round before"
        return assignments, {"rounds": state["rounds"] + 1}


class StopAfterTwo(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt


def test_a_methods_memory_is_handed_on_and_outlives_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "feast", Counting)
    settings = {**SHORT, "training.rounds": 4, "checkpoint.every_rounds": 10}
    with pytest.raises(Interrupted, match="after round 2"):
        Run.create("digits", tmp_path / "run", settings).train(StopAfterTwo())
    run = Run.create("digits", tmp_path / "run", settings)
    assert isinstance(run.federation.method, Counting)
    saved, _ = run.folder.checkpoints.load_latest()
    assert saved is not None
    assert saved.method_state["rounds"].tolist() == [2]
    run.train()
    finished, _ = run.folder.checkpoints.load_latest()
    assert finished is not None
    assert finished.method_state["rounds"].tolist() == [4]


def test_traffic_is_what_the_clients_were_sent(recorded: tuple[Run, list[TrainingState]]) -> None:
    run, _ = recorded
    network = build_network(run.recipe)
    cache = read_cache(run.recipe.variants.cache, network)
    budgets = [float(client["budget_macs"]) for client in run.folder.clients()]
    payloads = []
    for row in run.folder.metrics():
        sent = [
            network.parameters(envelope_of(cache.affordable(budgets[client]), network)) for client in row["clients"]
        ]
        assert row["payload_parameters"] == sum(sent)
        payloads += sent
    assert len(payloads) == 9
    assert len(set(payloads)) > 1
    traffic = run.summary["traffic"]
    assert traffic["supernet_parameters"] == 18_682
    assert traffic["mean_payload_parameters"] == pytest.approx(np.mean(payloads))
    assert traffic["reduction"] == pytest.approx(18_682 / np.mean(payloads))
    assert traffic["parameters_both_ways"] == 2 * sum(payloads)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_an_opened_run_takes_the_threads_of_its_start(tmp_path: Path) -> None:
    path = Run.create("digits", tmp_path / "run", {**SHORT, "engine.threads": "none"}).folder.path
    environment = json.loads((path / "environment.json").read_text())
    (path / "environment.json").write_text(json.dumps({**environment, "threads": 3}))
    assert Run.open(path).federation.participants
    assert torch.get_num_threads() == 3
