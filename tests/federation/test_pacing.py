import pytest

from fedfeast.federation import Pace, draw_cohort
from fedfeast.federation.pacing import Task, begin_tasks, end_tasks, run_clock
from fedfeast.randomness import named_generator


def test_a_change_counts_for_less_the_longer_ago_it_left() -> None:
    assert [Pace(4, 2).factor(age) for age in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert Pace(4, 2, staleness_exponent=0.0).factor(100) == 1


def test_a_buffered_merge_takes_the_first_answers_and_the_others_go_on() -> None:
    tasks = [Task(0, 0, 9.0), Task(1, 0, 2.0), Task(2, 1, 3.0), Task(3, 1, 3.0)]
    ended, left = end_tasks(tasks, Pace(4, 2))
    assert [task.client for task in ended] == [1, 2]
    assert [task.client for task in left] == [3, 0]
    assert end_tasks(tasks, Pace(4))[1] == []  # a synchronous one waits for all
    assert len(end_tasks(tasks[:1], Pace(4, 2))[0]) == 1  # and nobody for those who are not there


def test_who_takes_too_long_is_given_up_at_its_deadline_and_is_no_answer() -> None:
    pace = Pace(3, 1, deadline_seconds=5.0)
    tasks = begin_tasks({0: 100.0, 1: 7.0, 2: 4.0}, 0, 10.0, pace)
    assert [(task.ends_at, task.in_time) for task in tasks] == [(15.0, False), (15.0, False), (14.0, True)]
    (first,), left = end_tasks(tasks, pace)
    assert first.client == 2
    assert end_tasks(left, pace) == (left, [])


def test_the_clock_of_a_slow_client_by_hand() -> None:
    """Clients 0 and 1 take a second, client 2 ten: all three are at work all the time."""
    seconds = {0: 1.0, 1: 1.0, 2: 10.0}

    def sample(eligible: object, size: int, round_index: int) -> list[int]:
        generator = named_generator(0, "cohort", round_index)
        return draw_cohort("named", list(eligible), size, round_index, generator)  # type: ignore[call-overload]

    synchronous = run_clock([0, 1, 2], seconds.__getitem__, Pace(3), 4, sample)
    assert (synchronous.seconds, sum(synchronous.answers.values())) == (40.0, 12)
    buffered = run_clock([0, 1, 2], seconds.__getitem__, Pace(3, 2), 11, sample)
    # Ten merges a second apart take the fast ones' answers in; the slow one's is there with the tenth second's.
    assert buffered.seconds == 11.0
    assert buffered.answers == {0: 11, 1: 10, 2: 1} or buffered.answers == {0: 10, 1: 11, 2: 1}
    assert buffered.ages[0] >= 20
    assert max(buffered.ages) in (9, 10)


def test_who_is_at_work_is_not_asked_again() -> None:
    assert Pace(4).free([0, 1, 2], set()) == ([0, 1, 2], 4)
    assert Pace(4, 2).free([0, 1, 2], {1}) == ([0, 2], 3)
    assert Pace(1, 1).free([0, 1, 2], {1}) == ([0, 2], 0)
