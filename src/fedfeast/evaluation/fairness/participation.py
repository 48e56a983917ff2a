"""How often every client was asked and answered, from a run's lines of metrics."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LATE = "no answer within"  # as the reason begins that a round has for going on without a client
# What a line of metrics says of who took part; those of simulated rounds have the first two alone.
TAKING_PART = ("clients", "refused", "answered", "failed", "answer_seconds")


class Participation:
    """Counts, added to round by round; refusals and failures are told by name, the rest by index."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()  # what was taken in
        self.refused: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()  # for any other reason: out of reach, an error
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.awaits_answers = False  # whether clients can be late or out of reach, which simulated ones are not

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> "Participation":
        """Count all rounds of a run; names are the clients', by index."""
        counted = cls()
        for row in rows:
            counted.add(row, names)
        return counted

    def add(self, row: Mapping[str, Any], names: Sequence[str]) -> None:
        """Count one round."""
        refused = {refusal["client"] for refusal in row.get("refused", ())}
        # A refusal stands in an answer's place. Where no answers are awaited, everybody who is asked gives one.
        answered = row.get("answered", row["clients"])
        self.asked.update(row["clients"])
        self.answered.update(index for index in answered if index >= len(names) or names[index] not in refused)
        self.refused.update(refused)
        for name, reason in row.get("failed", {}).items():
            (self.late if reason.startswith(LATE) else self.failed)[name] += 1
        for name, seconds in row.get("answer_seconds", {}).items():
            self.seconds[name].append(seconds)
        self.awaits_answers |= "answered" in row
