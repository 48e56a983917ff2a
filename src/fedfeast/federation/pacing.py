"""Whom a server waits for: all whom it asked, or the first answers; and when clients answer by a simulated clock."""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from fedfeast.data import Preparation
from fedfeast.federation.method import Method
from fedfeast.federation.records import Assignment

TRAINING_FACTOR = 3  # a forward and backward pass against a forward pass, the paper's proxy


@dataclass(frozen=True)
class Pace:
    """How many clients are at work at once, and how many answers a merge waits for."""

    at_once: int
    buffer: int | None = None  # None: the answers of all whom a round asked
    staleness_exponent: float = 0.5
    deadline_seconds: float = float("inf")  # after which an answer is given up

    @property
    def is_buffered(self) -> bool:
        """Whether a merge waits for the first answers alone, and later ones count in a later merge."""
        return self.buffer is not None

    def factor(self, age: int) -> float:
        """Return how much of a change counts that left so many merges ago: 1 / (1 + age)^exponent."""
        return float((1 + age) ** -self.staleness_exponent)

    def free(self, eligible: Sequence[int], at_work: Set[int]) -> tuple[Sequence[int], int]:
        """Return who may be asked now, and how many of them: as many as are missing at work."""
        if not at_work:
            return eligible, self.at_once
        return [client for client in eligible if client not in at_work], max(self.at_once - len(at_work), 0)


@dataclass(frozen=True)
class Task:
    """A client at work by the simulated clock: asked in a round, done at a time."""

    client: int
    round_index: int
    ends_at: float
    in_time: bool = True  # else it is given up then


def begin_tasks(seconds: dict[int, float], round_index: int, now: float, pace: Pace) -> list[Task]:
    """Return the tasks of clients that are asked now, given the seconds that each will take."""
    deadline = pace.deadline_seconds
    return [
        Task(client, round_index, now + min(needed, deadline), needed <= deadline) for client, needed in seconds.items()
    ]


def end_tasks(tasks: Sequence[Task], pace: Pace) -> tuple[list[Task], list[Task]]:
    """Return the tasks that end before the next merge, in the order of their ends, and those that go on."""
    ordered = sorted(tasks, key=lambda task: (task.ends_at, task.round_index, task.client))
    if pace.buffer is None:
        return ordered, []
    answers = 0
    for place, task in enumerate(ordered, start=1):
        answers += task.in_time
        if answers == pace.buffer:
            return ordered[:place], ordered[place:]
    return ordered, []


def training_macs(method: Method, assignment: Assignment, preparation: Preparation) -> float:
    """Return the MACs that a client's round is expected to take, forward and backward."""
    passes = method.expected_passes(assignment).items()
    a_step = sum(share * method.network.macs(architecture) for architecture, share in passes)
    steps = preparation.count_steps(assignment.client.num_examples)
    return TRAINING_FACTOR * steps * preparation.batch_size * a_step


@dataclass
class Timeline:
    """What so many merges take by the simulated clock."""

    seconds: float = 0.0
    asked: int = 0
    answers: Counter[int] = field(default_factory=Counter)  # by client
    ages: Counter[int] = field(default_factory=Counter)
    given_up: int = 0


Sample = Callable[[Sequence[int], int, int], Sequence[int]]  # of eligible clients so many, for a round


def run_clock(
    eligible: Sequence[int], seconds_of: Callable[[int], float], pace: Pace, rounds: int, sample: Sample
) -> Timeline:
    """Play the rounds of a run through without any training: who is asked, who answers, when."""
    line, tasks = Timeline(), list[Task]()
    for round_index in range(rounds):
        free, size = pace.free(eligible, {task.client for task in tasks})
        asked = sample(free, size, round_index) if free and size else []
        line.asked += len(asked)
        tasks += begin_tasks({client: seconds_of(client) for client in asked}, round_index, line.seconds, pace)
        ended, tasks = end_tasks(tasks, pace)
        for task in ended:
            line.seconds = max(line.seconds, task.ends_at)
            if task.in_time:
                line.answers[task.client] += 1
                line.ages[round_index - task.round_index] += 1
            else:
                line.given_up += 1
    return line
