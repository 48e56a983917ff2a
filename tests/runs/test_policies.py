"""Runs with refusals, liars, robust rules and noise: what is kept, said and gone on from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.errors import InvalidInput
from fedfeast.federation import CentralPrivacy, Privacy, spent_centrally, spent_epsilon
from fedfeast.planning.plan import plan_recipe
from fedfeast.presentation.report import write_report
from fedfeast.presentation.tables import policy_facts
from fedfeast.recipes import load_recipe
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.assembly import assemble
from fedfeast.runs.training import Silent

SHORT: dict[str, Any] = {
    **TINY,
    "training.rounds": 4,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 2,
}
ROBUST = {**SHORT, "aggregation.rule": "clipped-mean", "aggregation.refuse_multiple": 4.0, "adversary.share": 0.5}
CENTRAL = {
    **SHORT,
    "training.cohort": "poisson",
    "evaluation.every_rounds": 2,
    "privacy.mechanism": "central",
    "privacy.clip_norm": 0.5,
    "privacy.noise_multiplier": 0.8,
}


class StopAfter(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt


def test_the_history_and_the_refusals_survive_a_stop(tmp_path: Path) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", ROBUST).train()
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "broken", ROBUST).train(StopAfter())
    broken = Run.create("digits", tmp_path / "broken", ROBUST).train()
    states = [run.folder.checkpoints.load_latest()[0] for run in (unbroken, broken)]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0].flat, states[1].flat)
    assert states[0].norm_history == states[1].norm_history
    assert len(states[0].norm_history.medians) == 4
    refused = [[row.get("refused") for row in run.folder.metrics()] for run in (unbroken, broken)]
    assert refused[0] == refused[1]
    assert refused[0][0] is None  # nothing to compare the first round with
    said = [refusal for row in refused[0] for refusal in row or []]
    assert said
    assert all("above the bound" in one["reason"] for one in said)
    names = {client.name for client in unbroken.federation.clients}
    assert {one["client"] for one in said} <= names
    assert unbroken.summary["refused_replies"]["count"] == len(said)
    facts = dict(policy_facts(unbroken.summary))
    assert facts["hostile clients"] == "50 %"
    assert facts["refused replies"].startswith(f"{len(said)} from")
    page = write_report([unbroken], tmp_path / "report.html")[0].read_text()
    assert "refused replies" in page


def test_everything_off_keeps_nothing(tmp_path: Path) -> None:
    run = Run.create("digits", tmp_path / "run", {**SHORT, "training.rounds": 1}).train()
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    assert state.norm_history.medians == ()
    assert not {"refused_replies", "adversary_share", "privacy"} & run.summary.keys()
    assert policy_facts(run.summary) == []


def test_a_spent_budget_stands_in_the_summary(tmp_path: Path) -> None:
    settings = {**SHORT, "privacy.clip_norm": 0.5, "privacy.noise_multiplier": 2.0}
    run = Run.create("digits", tmp_path / "run", settings).train()
    spent = run.summary["privacy"]
    rows = run.folder.metrics()
    most = max(sum(client in row["clients"] for row in rows) for client in range(40))
    assert spent["participations"] == most
    assert spent["epsilon"] == spent_epsilon(Privacy(0.5, 2.0), most) > 0
    assert spent["median_epsilon"] <= spent["epsilon"]


def test_a_missing_accountant_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.federation.aggregation.privacy.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedfeast\[privacy\]'"):
        Run.create("digits", tmp_path / "run", {"privacy.clip_norm": 1.0})
    assert not (tmp_path / "run").exists()


def test_the_recipe_says_who_lies() -> None:
    built = assemble(load_recipe("digits", {"adversary.share": 0.2, "aggregation.rule": "median"}))
    policy = built.update_policy()
    assert policy.adversary is not None
    assert len(policy.adversary.clients) == round(0.2 * len(built.participants))
    assert policy.aggregation.rule == "median"
    with pytest.raises(InvalidInput, match=r"aggregation.trim_share = 0.7"):
        load_recipe("digits", {"aggregation.trim_share": 0.7})


def test_training_that_would_follow_noise_says_so_before_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SHORT, "privacy.clip_norm": 1.0, "privacy.noise_multiplier": 2.0, "training.rounds": 1}
    with caplog.at_level("WARNING", "fedfeast"):
        Run.create("digits", tmp_path / "run", settings).train()
    assert sum("times the update itself" in message for message in caplog.messages) == 1


def test_central_privacy_is_told_everywhere_and_survives_a_stop(tmp_path: Path) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", CENTRAL).train()
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "broken", CENTRAL).train(StopAfter())
    broken = Run.create("digits", tmp_path / "broken", CENTRAL).train()
    states = [run.folder.checkpoints.load_latest()[0] for run in (unbroken, broken)]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0].flat, states[1].flat)  # a repeated round has the same noise: it counts once
    rate, privacy = 4 / len(unbroken.federation.participants), CentralPrivacy(0.5, 0.8)
    for run in (unbroken, broken):
        rows, spent = run.folder.metrics(), run.summary["privacy"]
        assert spent["epsilon"] == spent_centrally(privacy, {rate: 4}) == rows[3]["epsilon"]
        assert rows[1]["epsilon"] == spent_centrally(privacy, {rate: 2})
        assert (spent["rounds"], spent["sampling_rate"]) == (4, rate)
        assert "epsilon" not in rows[0]
        assert all(row["losses"] == {} for row in rows)
    assert len({len(row["clients"]) for row in unbroken.folder.metrics()}) > 1  # cohorts differ in size
    assert plan_recipe("digits", CENTRAL)["privacy"]["epsilon"] == unbroken.summary["privacy"]["epsilon"]
    facts = dict(policy_facts(unbroken.summary))
    assert facts["privacy"].endswith("4 rounds, central")
    assert facts["privacy"] in write_report([unbroken], tmp_path / "report.html")[0].read_text()


def test_a_run_whose_cohorts_are_empty_ends_all_the_same(tmp_path: Path) -> None:
    settings = {**CENTRAL, "population.num_clients": 400, "population.greatest_macs": 2e5}
    run = Run.create("digits", tmp_path / "run", {**settings, "training.clients_per_round": 1, "training.rounds": 6})
    rows = run.train().folder.metrics()
    assert any(row["clients"] == [] for row in rows)
    assert run.summary["privacy"]["rounds"] == 6
    plain = {**SHORT, "training.cohort": "poisson", "training.clients_per_round": 1, "training.rounds": 6}
    other = Run.create("digits", tmp_path / "plain", plain).train()
    assert any(row["clients"] == [] for row in other.folder.metrics())
