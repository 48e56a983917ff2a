"""How a user's own files become a data set."""

from dataclasses import dataclass

from fedfeast.data.reading.facts import KINDS, TASKS
from fedfeast.errors import InvalidInput

TEST_SHARE = 0.2
CLIENT_FOLDERS = "folder"  # the word for clients that are folders of images


@dataclass(frozen=True)
class PrepareOptions:
    """Which parts of a file or folder are what, and what is held out."""

    size: int | None = None  # all images are resized to size x size
    test_share: float | None = None  # held out where no test part is named; TEST_SHARE by default
    seed: int = 0  # of the draw of the test set
    clients: str | None = None  # the column or array of client names, or "folder"
    labels: str | None = None  # the column or array of labels; several columns with commas
    test: str | None = None  # the column or array that tells test examples
    task: str | None = None  # classification by default
    kind: str | None = None  # by the look of the inputs

    def __post_init__(self) -> None:
        if self.size is not None and not 4 <= self.size <= 1024:
            raise InvalidInput(f"--size {self.size} is out of range: give 4 to 1024 pixels.")
        if self.test_share is not None and not 0 < self.test_share < 1:
            raise InvalidInput(f"--test-share {self.test_share} is no share: give a number between 0 and 1.")
        if self.test_share is not None and self.test is not None:
            raise InvalidInput(f"--test-share has no effect beside --test {self.test}: leave one of them out.")
        if self.seed < 0:
            raise InvalidInput(f"--seed {self.seed} is negative: give 0 or more.")
        if self.task is not None and self.task not in TASKS:
            raise InvalidInput(f"--task {self.task} is no task: choose one of {', '.join(TASKS)}.")
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidInput(f"--kind {self.kind} is no kind of data: choose one of {', '.join(KINDS)}.")

    @property
    def share(self) -> float:
        """The share held out."""
        return TEST_SHARE if self.test_share is None else self.test_share


def count_test(share: float, members: int) -> int:
    """Return how many of some examples are held out: at least one of two, and never all."""
    return min(max(round(share * members), 1), members - 1)
