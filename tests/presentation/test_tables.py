import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType

from fedfeast.data.tasks import ACCURACY, task_named
from fedfeast.presentation.tables import (
    describe_data,
    describe_run,
    device_latency_tables,
    ladder_table,
    latency_table,
    policy_facts,
    served_round,
)

SUMMARY: dict[str, Any] = {
    "recipe": "digits",
    "data": "digits",
    "method": "feast",
    "finished_rounds": 3,
    "best_round": 2,
    "population_score": 0.4375,
    "served_share": 0.75,
    "clients": 4,
    "training_seconds": 1.0,
    "partition": {"smallest_shard": 3, "largest_shard": 9, "share_correlation": 0.9876, "moved_examples": 2},
    "traffic": {"reduction": 3.5, "mean_payload_parameters": 100.0, "supernet_parameters": 350},
    "curve": [
        {"name": "1k", "macs": 1000, "parameters": 12_345, "accuracy": 0.5},
        {"name": "2k", "macs": 2000, "parameters": 20, "accuracy": 0.75},
    ],
    "picture": "a[/b]/curve.png",
}


def lines_of(*parts: RenderableType) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=110)
    for part in parts:
        console.print(part, markup=not isinstance(part, str))
    return stream.getvalue().splitlines()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]


def test_a_run_is_titled_by_its_data() -> None:
    for data, title in {"digits": "digits: feast after 3", "mine": "mine (recipe digits): feast after 3"}.items():
        assert title in lines_of(*describe_run({**SUMMARY, "data": data}, np.ones(4)))[0]


def test_a_run_says_who_is_served_by_what() -> None:
    wins = {"wins": 3, "ties": 1, "losses": 0}
    lines = lines_of(*describe_run({**SUMMARY, "client_wins": wins}, np.array([500, 1500, 1600, 9000])))
    text = "\n".join(lines)
    for part in (
        "12,345",
        "50.00 %",
        "43.75 %",
        "75.0 %; the others count as 0 %",
        "3.50x",
        "3 to 9 examples",
        "0.988 correlated",
        "2 examples moved",
        "3 better, 1 equal",
        "a[/b]/curve.png",
    ):
        assert part in text
    assert [cells_of(line)[4] for line in lines if "%" in line and "│" in line] == ["2", "1"]


def test_which_of_two_vectors_is_served_is_said_where_there_was_a_choice() -> None:
    assert served_round(SUMMARY) == "2"
    assert served_round({**SUMMARY, "served_vector": "global"}) == "2, the global vector itself"
    assert served_round({**SUMMARY, "served_vector": "average"}) == "2, the running average"


def test_what_is_the_same_for_all_is_not_dwelt_upon() -> None:
    shares = {key: value for key, value in SUMMARY["partition"].items() if key != "share_correlation"}
    text = "\n".join(lines_of(*describe_run({**SUMMARY, "served_share": 1.0, "partition": shares}, np.ones(4))))
    assert "equal by design" in text
    assert "the others count" not in text
    assert "client wins" not in text


def test_examples_that_two_hold_and_those_of_nobody_are_told() -> None:
    notes = {"trained_validation_examples": 4049, "trained_calibration_examples": 452, "unused_examples": 4501}
    notes["untrained_classes"] = 20
    text = " ".join(
        "\n".join(lines_of(*describe_run({**SUMMARY, "partition": SUMMARY["partition"] | notes}, np.ones(4)))).split()
    )
    assert "clients also train on 4049 of the server's validation and 452 of its calibration examples" in text
    assert "4501 training examples are used by nobody; nobody trains 20 of the classes" in text
    listed = {**SUMMARY["partition"], "listed_examples": 12}
    assert "as a file lists them" in "\n".join(lines_of(*describe_run({**SUMMARY, "partition": listed}, np.ones(4))))


def test_clients_of_the_data_s_own_are_told_by_what_they_do() -> None:
    division = {"training": 4, "held_out": 2, "server": 1, "excluded": 0, "pooled": 3}
    natural = {**SUMMARY, "division": division, "budgets_and_data": {"rank_correlation": -0.25, "gamma": -0.1}}
    text = "\n".join(lines_of(*describe_run(natural, np.ones(4))))
    assert "3 to 9 examples a client, -0.25 correlated with budgets (gamma -0.10); 4 clients train" in text
    assert "2 held out, 1 the server's, 3 in pools" in " ".join(text.split())
    assert "correlated with their targets" not in text


FIGURES = {"bits": 2.5, "accuracy": 0.4, "perplexity": 5.657}
TEXT: dict[str, Any] = {
    **SUMMARY,
    "population_score": 3.125,
    "metric": task_named("next-token").metric.facts(),
    "unserved_value": 6.25,
    "curve": [
        {"name": "1k", "macs": 1000, "parameters": 1, "accuracy": 0.4, "value": 2.5, "figures": FIGURES},
        {"name": "2k", "macs": 2000, "parameters": 2, "accuracy": 0.4, "value": 2.5, "figures": FIGURES},
    ],
}


def test_a_run_over_text_shows_bits_and_all_its_figures() -> None:
    lines = lines_of(*describe_run(TEXT, np.array([500, 1500])))
    assert cells_of(lines[2]) == [
        "variant", "MACs", "parameters", "test bits per symbol", "accuracy", "perplexity", "clients served"
    ]  # fmt: skip
    assert cells_of(lines[4]) == ["1", "1k", "1", "2.5", "40.00 %", "5.657", "1"]
    text = "\n".join(lines)
    assert "population score   3.125 (4 clients" in text
    assert "75.0 %; the others count as 6.25 in the score" in text


def test_every_test_set_has_a_column_with_its_error_over_clients() -> None:
    def rows(bits: float) -> list[dict[str, Any]]:
        return [{**row, "value": bits, "standard_error": 0.0312} for row in TEXT["curve"]]

    sets = {name: {"clients": 7, "curve": rows(bits)} for name, bits in (("held out", 2.75), ("known", 2.5))}
    lines = lines_of(*describe_run({**TEXT, "test_sets": sets}, np.array([500, 1500])))
    text = "".join(lines[:4])
    assert "held out" in text
    assert "known" in text
    row = next(line for line in lines if "2.75" in line)
    assert cells_of(row)[3:5] == ["2.75 \N{PLUS-MINUS SIGN} 0.031", "2.5 \N{PLUS-MINUS SIGN} 0.031"]
    alone = {"held out": sets["held out"]}
    assert "held out" not in "".join(lines_of(*describe_run({**TEXT, "test_sets": alone}, np.ones(2))))


@pytest.mark.parametrize("key", ["adversary_share", "hostile_share"])
def test_lying_clients_are_told_of_in_new_and_old_summaries(key: str) -> None:
    refused = {"count": 3, "by_client": {"a": 2, "b": 1}}
    facts = policy_facts({**SUMMARY, key: 0.2, "refused_replies": refused})
    assert facts == [("hostile clients", "20 %"), ("refused replies", "3 from 2 clients")]
    assert policy_facts(SUMMARY) == []


def test_a_run_with_a_clock_says_how_long_it_took_and_how_old_answers_were() -> None:
    ages = {"answers": 4, "mean": 0.75, "oldest": 3}
    facts = dict(policy_facts({**SUMMARY, "clock_seconds": 70.9, "ages": ages}))
    assert facts == {"simulated clock": "70.9 s", "age of answers": "0.75 merges on average, 3 at most"}


def test_a_ladder_with_and_without_quantised_networks() -> None:
    rung = {"folder": "01-1k", "macs": 1000, "parameters": 12_345, "test_accuracy": 0.5, "exports": {"model.onnx": {}}}
    index = {"run": {"name": "digits"}, "rungs": [rung]}
    lines = lines_of(ladder_table(index))
    assert lines[0].strip() == "ladder of digits"
    assert cells_of(lines[4]) == ["01-1k", "1,000", "12,345", "50.00 %"]
    rung["exports"] = {"model.onnx": {}, "model.int8.onnx": {"test_accuracy": 0.25}}
    lines = lines_of(ladder_table(index))
    assert cells_of(lines[2])[-1] == "in int8"
    assert cells_of(lines[4])[-1] == "25.00 %"


def test_latency() -> None:
    point = {"name": "1k", "parameters": 12_345, "accuracy": 0.5, "median_ms": 1.2345, "fastest_ms": 0.5}
    lines = lines_of(latency_table({"device": "a phone", "threads": 2, "points": [point]}))
    assert lines[0].strip() == "one example on a phone, 2 threads"
    assert cells_of(lines[4]) == ["1k", "12,345", "50.00 %", "1.23 ms", "0.5 ms"]


def test_headings_are_not_cut_in_a_narrow_terminal() -> None:
    point = {"name": "416.9k", "parameters": 46_546, "value": 0.98, "median_ms": 1.2, "repeats": 1}
    joined = {
        "measured": "phones.csv",
        "metric": ACCURACY.facts(),
        "devices": [{"device": "Pixel 7", "points": [point]}],
    }
    stream = io.StringIO()
    Console(file=stream, width=60).print(*device_latency_tables(joined))
    assert "…" not in stream.getvalue()


def test_latency_of_a_network_over_text() -> None:
    point = {"name": "1k", "parameters": 5, "accuracy": 0.5, "value": 2.5, "median_ms": 1.0, "fastest_ms": 0.5}
    facts = task_named("next-token").metric.facts()
    lines = lines_of(latency_table({"device": "a phone", "threads": 2, "metric": facts, "points": [point]}))
    assert cells_of(lines[2])[2] == "test bits per symbol"
    assert cells_of(lines[4])[2] == "2.5"


def test_data_sets_and_what_they_need() -> None:
    known = {"name": "mine", "classes": 3, "side": 8, "channels": 1, "state": "prepared", "needs": "nothing"}
    known |= {"train_examples": 1200, "test_examples": 300, "server_examples": None, "clients": 0}
    spoken = {**known, "name": "ours", "kind": "tokens", "task": "next-token", "shape": [80], "clients": 1027}
    served = {**known, "name": "his", "channels": 2, "server_examples": 90}
    unknown = {"name": "hers", "state": "damaged", "needs": "prepare [it] again", "classes": None}
    metered = {**known, "name": "its", "kind": "numbers", "task": "regression", "shape": [6], "classes": 1}
    lines = lines_of(*describe_data([known, {**known, **unknown}, spoken, served, metered]))
    assert [line.rstrip() for line in lines] == [
        "mine  prepared",
        "  8 x 8 grey images, 3 classes; 1,200 to train, 300 to test",
        "hers  damaged",
        "ours  prepared",
        "  80 tokens, 3 next tokens; 1,200 to train, 300 to test, 1,027 clients of their own",
        "his  prepared",
        "  8 x 8 images, 3 classes; 1,200 to train, 300 to test, 90 held by the server",
        "its  prepared",
        "  6 numbers, 1 target; 1,200 to train, 300 to test",
        "hers: prepare [it] again",
    ]
