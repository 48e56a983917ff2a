"""What travels as JSON between server and clients: every field has a type, a range and a size, checked before use."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from flwr.app import ConfigRecord, RecordDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

MOST_BYTES = 2**20  # of an introduction or a report
MOST_TERMS_BYTES = 64 * 2**20  # of a server's terms, which hold whole files, and of an order
LONGEST_NAME = 100
LONGEST_TEXT = 500  # of what a client says in its own words
MOST_CLASSES = 100_000
MOST_EXAMPLES = 10**9
MOST_STEPS = 10**9
MOST_POINTS = 10_000  # networks of a method
MOST_ROLES = 16  # of a client's losses; they become keys of the metrics
SHOWN = 60  # characters of a bad value

Content = TypeVar("Content", bound="Message")


class Unreadable(ValueError):
    """A message does not hold what it should; the text says what is wrong."""


def _named(name: str) -> str:
    """Refuse a name that a table or a log could not show, or that only blanks tell from another."""
    if not name.isprintable() or name != name.strip():
        raise ValueError(f"it must be one line of up to {LONGEST_NAME} printable characters without blanks around it")
    return name


Count = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_named)]
Role = Annotated[str, Field(min_length=1, max_length=40), AfterValidator(_named)]
Sha256 = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]  # empty: of nothing
Loss = Annotated[FiniteFloat, Field(ge=-1e12, le=1e12)]


class Message(BaseModel):
    """Plain values of one message; what is missing, unknown, of another type or out of range makes it unreadable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def read(cls: type[Content], content: Mapping[str, Any], what: str) -> Content:
        """Return the checked message; the first thing wrong is said in a sentence."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise Unreadable(_explain(error, what)) from None


class Introduction(Message):
    """Who a client is."""

    name: Name
    budget_macs: Annotated[FiniteFloat, Field(gt=0, le=1e18)]
    num_examples: Count
    held_classes: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_CLASSES)]], Field(max_length=MOST_CLASSES)]
    space: Annotated[str, Field(max_length=64)]
    version: Annotated[str, Field(max_length=64)]
    kept_back: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)] = 0  # examples for evaluations


class Report(Message):
    """What a client says of the training that its weights come from."""

    num_examples: Count
    num_steps: Annotated[int, Field(ge=0, le=MOST_STEPS)]  # none with too few examples for a batch
    # The sum, and of how many: JSON's whole numbers are read as floats, so that both have the bounds of one.
    losses: Annotated[
        dict[Role, Annotated[list[Loss], Field(min_length=2, max_length=2)]], Field(max_length=MOST_ROLES)
    ]

    held_sha256: Sha256 = ""  # of the weights that it holds for the next difference

    def loss_totals(self) -> dict[str, tuple[float, int]]:
        """Return by role the sum of all passes' losses, and how many there were."""
        totals = {role: (total, int(count)) for role, (total, count) in self.losses.items()}
        if any(not 1 <= count <= MOST_STEPS or count != self.losses[role][1] for role, (_, count) in totals.items()):
            raise Unreadable("its report counts losses that cannot be")
        return totals


class Order(Message):
    """What a client is to do in a round; its assignment is read beside its arrays."""

    round_index: Annotated[int, Field(ge=0, le=MOST_STEPS)]
    learning_rate: Annotated[FiniteFloat, Field(gt=0, le=1e6)]
    assignment: dict[str, Any]
    weights_sha256: Sha256 = ""  # of what the client has of them in the end, where differences are sent
    base_sha256: Sha256 = ""  # of the weights that these are a difference to; empty: they are whole


class EvaluationOrder(Message):
    """Which sums a client is to make of which networks; their weights and statistics are read beside it."""

    round_index: Annotated[int, Field(ge=0, le=MOST_STEPS)]
    what: Literal["statistics", "totals"]
    points: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=MOST_POINTS)]
    with_statistics: bool


class StatisticsReport(Message):
    """What a client says of its sums for the served statistics."""

    examples: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)]


class TotalsReport(Message):
    """A client's sums over the examples that it keeps back, by network."""

    examples: Count
    totals: Annotated[
        list[Annotated[list[FiniteFloat], Field(max_length=MOST_CLASSES)]], Field(min_length=1, max_length=MOST_POINTS)
    ]


class FactsMessage(Message):
    """What a network must know of the data."""

    classes: Annotated[int, Field(ge=1, le=MOST_CLASSES)]
    channels: Annotated[int, Field(ge=1, le=MOST_CLASSES)]
    side: Annotated[int, Field(ge=1, le=MOST_CLASSES)]
    train_examples: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)]
    test_examples: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)]
    server_examples: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)] = 0
    kind: Literal["images", "numbers", "tokens"] = "images"
    task: Literal["classification", "next-token", "multi-label", "regression"] = "classification"
    shape: Annotated[list[Annotated[int, Field(ge=1, le=MOST_CLASSES)]], Field(max_length=8)] = []
    clients: Annotated[int, Field(ge=0, le=MOST_EXAMPLES)] = 0
    vocabulary: Annotated[int, Field(ge=0, le=MOST_CLASSES)] = 0


class NormalisationMessage(Message):
    """Mean and standard deviation per channel."""

    mean: Annotated[list[FiniteFloat], Field(min_length=1, max_length=MOST_CLASSES)]
    deviation: Annotated[list[Annotated[FiniteFloat, Field(gt=0)]], Field(min_length=1, max_length=MOST_CLASSES)]


class TermsMessage(Message):
    """What a server tells every client before it takes part."""

    recipe: str
    files: dict[Literal["variants.cache", "population.file"], str]
    facts: FactsMessage
    class_names: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=MOST_CLASSES)]
    normalisation: NormalisationMessage | None  # None: token ids
    version: Annotated[str, Field(max_length=64)]
    space: Annotated[str, Field(max_length=64)]
    builder_sha256: Sha256 = ""


def to_json(content: Mapping[str, Any]) -> ConfigRecord:
    """Return a record of one JSON text."""
    return ConfigRecord({"json": json.dumps(content)})


def from_json(records: RecordDict, name: str, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object of a message's record, unless it is larger than such a record may be."""
    try:
        text = records.config_records[name]["json"]
        if not isinstance(text, str) or len(text) > most_bytes:
            raise Unreadable(f"the record {name!r} is no text of at most {most_bytes:,} characters")
        content = json.loads(text)
    except (KeyError, ValueError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"no readable record {name!r} ({one_line(error)})") from error
    if not isinstance(content, dict):
        raise Unreadable(f"the record {name!r} is no JSON object")
    return content


def num_bytes(records: RecordDict) -> int:
    """Return the bytes that a message carries: its arrays and its texts."""
    arrays = sum(len(one.data) for record in records.array_records.values() for one in record.values())
    texts = sum(
        len(one.encode())
        for record in records.config_records.values()
        for one in record.values()
        if isinstance(one, str)
    )
    return arrays + texts


def one_line(words: Any) -> str:
    """Return what somebody else says as one line of a log, cut where it is long and without what is not printable."""
    line = " ".join(str(words).split())[:LONGEST_TEXT]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _explain(error: ValidationError, what: str) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))[:SHOWN]
    given = repr(first.get("input"))
    shown = given if len(given) <= SHOWN else f"{given[:SHOWN]}..."
    return one_line(f"its {what} has {place} = {shown}: {first['msg']}")
