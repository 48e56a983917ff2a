from flwr.app import RecordDict

from fedfeast.flower.messages import to_json
from fedfeast.flower.transport import Transport

from .conftest import LocalGrid


def test_answers_are_pulled_one_by_one(grid: LocalGrid) -> None:
    transport = Transport(grid)
    assert transport.nodes() == {10, 11, 12}
    letters = [transport.send(node, "query", 4, RecordDict({"terms": to_json({})}), 60) for node in (10, 11)]
    assert [pending.round_index for pending in letters if pending] == [4, 4]
    assert grid.pushed[0].metadata.ttl == 60
    first = next(iter(transport.arrivals()))
    assert first[0].node_id == 10
    assert [pending.node_id for pending in transport.waiting("query")] == [11]
    assert len(grid.replies) == 1
    assert [pending.node_id for pending, _ in transport.arrivals()] == [11]
    assert list(transport.arrivals()) == []


def test_what_has_expired_is_given_up(grid: LocalGrid) -> None:
    grid.meddle = lambda message, reply: None
    transport = Transport(grid)
    transport.send(10, "train", 0, RecordDict({}), 1e-6)
    transport.send(11, "train", 0, RecordDict({}), 60)
    assert list(transport.arrivals()) == []
    assert [pending.node_id for pending in transport.waiting("train")] == [11]
    assert transport.waiting("query") == []


def test_a_message_that_is_not_taken_is_not_pending(grid: LocalGrid) -> None:
    grid.push_messages = lambda messages: []  # type: ignore[method-assign]
    assert Transport(grid).send(10, "train", 0, RecordDict({}), 60) is None
