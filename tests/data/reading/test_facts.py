import json
from dataclasses import asdict

import pytest

from fedfeast.data.reading.facts import DatasetFacts


@pytest.mark.parametrize(
    ("facts", "input_shape", "label_shape", "known"),
    [
        (DatasetFacts(10, 3, 32, 5, 5), (3, 32, 32), (), {"channels": 3, "side": 32}),
        (DatasetFacts(6, 6, 128, 5, 5, kind="numbers", shape=(6, 128)), (6, 128), (), {"channels": 6, "length": 128}),
        (DatasetFacts(6, 9, 9, 5, 5, kind="numbers", shape=(9,)), (9,), (), {"channels": 9}),
        (
            DatasetFacts(2, 9, 9, 5, 5, kind="numbers", task="regression", shape=(9,)),
            (9,),
            (2,),
            {"channels": 9},
        ),
        (
            DatasetFacts(68, 1, 80, 5, 5, kind="tokens", task="next-token", shape=(80,), clients=3),
            (80,),
            (80,),
            {"vocabulary": 68, "length": 80},
        ),
        (
            DatasetFacts(4, 1, 20, 5, 5, kind="tokens", shape=(20,), vocabulary=99),
            (20,),
            (),
            {"vocabulary": 99, "length": 20},
        ),
    ],
)
def test_shapes_and_what_a_builder_may_ask_for(
    facts: DatasetFacts, input_shape: tuple[int, ...], label_shape: tuple[int, ...], known: dict[str, int]
) -> None:
    assert facts.input_shape == input_shape
    assert facts.label_shape == label_shape
    assert facts.known == {"classes": facts.classes, "shape": input_shape, **known}
    assert DatasetFacts(**json.loads(json.dumps(asdict(facts)))) == facts


def test_facts_that_were_kept_before_there_were_kinds_are_those_of_images() -> None:
    old = {"classes": 2, "channels": 1, "side": 4, "train_examples": 5, "test_examples": 3, "server_examples": 2}
    facts = DatasetFacts(**old)  # type: ignore[arg-type]
    assert (facts.kind, facts.task, facts.clients, facts.input_shape) == ("images", "classification", 0, (1, 4, 4))
    assert facts.examples == {"train": 5, "test": 3, "server": 2}
