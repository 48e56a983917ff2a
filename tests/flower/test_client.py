from flwr.app import Context, Message, RecordDict

from fedfeast.flower import client
from fedfeast.flower.messages import from_json, to_json


def ask(content: RecordDict, config: dict[str, str | int | float]) -> dict[str, object]:
    message = Message(content, 5, "query")
    return from_json(client.introduce(message, Context(1, 5, config, RecordDict(), {})).content, "introduction")


def test_terms_that_cannot_be_read_are_a_problem_not_a_crash() -> None:
    answer = ask(RecordDict({"terms": to_json({"recipe": "digits"})}), {"name": "kitchen"})
    assert "problem" in answer
    assert (answer["name"], answer["version"]) == ("kitchen", "0.1.0")
    assert "no readable record" in str(ask(RecordDict({}), {})["problem"])


def test_an_order_that_cannot_be_read_is_a_problem_not_a_crash() -> None:
    message = Message(RecordDict({}), 5, "train")
    reply = client.train(message, Context(1, 5, {}, RecordDict(), {}))
    assert "no readable record" in from_json(reply.content, "report")["problem"]


def test_the_app_answers_both_questions() -> None:
    assert client.build_client_app() is not None
