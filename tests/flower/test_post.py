from flwr.app import RecordDict

from fedfeast.flower.post import Post
from fedfeast.flower.wire import to_json

from .conftest import LocalGrid


def test_answers_are_pulled_one_by_one(grid: LocalGrid) -> None:
    post = Post(grid)
    assert post.nodes() == {10, 11, 12}
    letters = [post.send(node, "query", 4, RecordDict({"terms": to_json({})}), 60) for node in (10, 11)]
    assert [letter.round_index for letter in letters if letter] == [4, 4]
    assert grid.pushed[0].metadata.ttl == 60
    first = next(iter(post.arrivals()))
    assert first[0].node_id == 10
    assert [letter.node_id for letter in post.waiting("query")] == [11]
    assert len(grid.replies) == 1
    assert [letter.node_id for letter, _ in post.arrivals()] == [11]
    assert list(post.arrivals()) == []


def test_what_has_expired_is_given_up(grid: LocalGrid) -> None:
    grid.meddle = lambda message, reply: None
    post = Post(grid)
    post.send(10, "train", 0, RecordDict({}), 1e-6)
    post.send(11, "train", 0, RecordDict({}), 60)
    assert list(post.arrivals()) == []
    assert [letter.node_id for letter in post.waiting("train")] == [11]
    assert post.waiting("query") == []


def test_a_message_that_is_not_taken_is_no_letter(grid: LocalGrid) -> None:
    grid.push_messages = lambda messages: []  # type: ignore[method-assign]
    assert Post(grid).send(10, "train", 0, RecordDict({}), 60) is None
