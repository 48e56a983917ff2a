"""What the server answers, as it stands in its OpenAPI description."""

from typing import Any, Literal

from pydantic import BaseModel

from fedfeast.server.collection import Shown
from fedfeast.server.offer import NothingFits
from fedfeast.server.shown.progress import State


class Problem(BaseModel):
    """Why there is no answer, in one sentence."""

    detail: str


class NoVariant(Problem):
    """No variant is within the limits."""

    least_macs: int
    least_parameters: int

    @classmethod
    def of(cls, error: NothingFits) -> "NoVariant":
        """Say what the least budget is."""
        return cls(detail=str(error), least_macs=error.least_macs, least_parameters=error.least_parameters)


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"] = "ok"
    version: str
    onnxruntime_web: str | None  # its version, where the page can run models in the visitor's browser


class Inputs(BaseModel):
    """What one example is: images, numbers or tokens, of which shape, and what is learnt from it."""

    kind: str
    shape: list[int]
    task: str


class Images(BaseModel):
    """What the run's networks take, and how many classes they tell apart."""

    channels: int
    side: int
    classes: int


class MetricFacts(BaseModel):
    """What values and scores measure, and whether more of it is better."""

    name: str
    label: str
    more_is_better: bool
    unit: str  # "%" where values are shares from 0 to 1, else nothing


class RunState(BaseModel):
    """A run: what it is, and how far it has come."""

    name: str
    runs: list[str]  # all that this server shows
    recipe: str
    method: str
    data: str
    inputs: Inputs
    images: Images
    metric: MetricFacts
    state: State
    note: str
    finished_rounds: int
    total_rounds: int
    seconds: float  # of training so far
    remaining_seconds: float | None
    served_round: int | None  # whose weights are on offer
    served_vector: str | None  # which weights of it, where a run keeps a running average: global, or average
    validation_score: float | None  # of that round: what the served checkpoint was chosen by
    chosen_by: str  # what that score is
    population_score: float | None  # mean of the metric over clients on the test set, once it is measured
    population_score_best: float | None  # where each client has the best model it affords, not the largest
    measured_on: str  # the test set, or what stood in for it
    clients: int | None
    served_share: float | None


class SizeValue(BaseModel):
    """What a validated size came to: a value of the run's metric."""

    name: str
    macs: int
    value: float


class Round(BaseModel):
    """A finished round."""

    round: int
    losses: dict[str, float]
    validation_score: float | None
    sizes: list[SizeValue]  # least MACs first; none where the round was not validated, or none is kept
    clients: int
    payload_parameters: int
    seconds: float


class History(BaseModel):
    """The rounds after a given one."""

    run: str
    rounds: list[Round]


class Variant(BaseModel):
    """A network on offer."""

    id: str
    name: str
    macs: int
    price: int  # the MACs that budgets are compared with; its own, unless the run's cache has prices
    parameters: int
    test_accuracy: float | None  # of tasks that have it
    test_value: float | None  # of the run's metric
    test_interval: tuple[float, float] | None  # within which it lies with 95 % certainty, where the test set is small
    validation_value: float | None  # likewise, on the validation examples
    latency_ms: float | None  # where fedfeast latency measured it on this machine, or a choice by it did
    clients: int | None  # whose budget it is the largest within
    onnx: str
    safetensors: str


class Anchor(BaseModel):
    """A published point: test accuracy in percent at an inference cost."""

    macs: float
    accuracy: float


class Variants(BaseModel):
    """All networks on offer, least MACs first."""

    run: str
    data: str
    metric: MetricFacts
    served_round: int | None
    variants: list[Variant]
    anchors: list[Anchor]


class Choice(BaseModel):
    """The largest variant that a device affords, or the one that validates best."""

    run: str
    chosen_by: Literal["largest", "best"]
    variant: Variant
    better: Variant | None  # a smaller one within the limits that validates better: what best=true would take


class Fleet(BaseModel):
    """The clients' budgets, counted in bins."""

    run: str
    clients: int
    served: int | None
    median_macs: float
    edges_macs: list[float]
    counts: list[int]


class Decile(BaseModel):
    """A tenth of the clients by budget; null where a fact is not known: a simulated client is never late."""

    decile: int  # from 1, the smallest budgets
    clients: int
    training: int  # of them, those that may train
    least_macs: float
    greatest_macs: float
    examples: int
    asked: int | None  # times, over all rounds; null under central privacy, whose draw stays unknown
    answered: int | None
    refused: int | None
    late: int | None
    failed: int | None  # out of reach, or an error in an answer's place
    answer_share: float | None  # of all clients' answers
    never_answered: int | None  # clients
    answer_seconds: float | None  # median from question to answer
    served: int | None  # clients that any variant fits
    value: float | None  # of the run's metric, mean over these
    score: float | None  # mean over all, each with the largest variant it affords
    score_best: float | None  # where each has the best it affords
    own_value: float | None  # on test examples of their own


class FairnessTable(BaseModel):
    """Who took part and what clients get, by tenths of their budgets; fewer than ten clients are told one by one."""

    run: str
    metric: MetricFacts
    deciles: list[Decile]
    worst_decile: int | None  # with the worst score, once scores are measured
    score_gap: float | None  # by which it lies behind the best


class ClassScore(BaseModel):
    """How likely a class is, from 0 to 1."""

    name: str
    probability: float


class Prediction(BaseModel):
    """What one variant sees in an example: the likeliest classes, labels or next symbols first, or numbers."""

    id: str
    classes: list[ClassScore]
    numbers: list[float] | None = None  # of a regression
    milliseconds: float  # of one inference on this machine, one thread


def describe_run(run: Shown, runs: list[str]) -> RunState:
    """Return what is known of a run."""
    seen = run.seen
    about, facts = seen.about, seen.about.data_facts
    rounds, total_rounds = len(seen.rows), about.total_rounds
    seconds = sum(row["seconds"] for row in seen.rows)
    training = seen.state == "training" and rounds > 0
    summary: dict[str, Any] = seen.summary or {}
    served = seen.offer.round if seen.offer is not None else None
    fleet = seen.fleet
    return RunState(
        name=run.name,
        runs=runs,
        recipe=about.recipe,
        method=about.method,
        data=about.data,
        inputs=Inputs(kind=facts.kind, shape=list(facts.input_shape), task=facts.task),
        images=Images(channels=facts.channels, side=facts.side, classes=facts.classes),
        metric=MetricFacts(**about.metric.facts()),
        state=seen.state,
        note=seen.note,
        finished_rounds=rounds,
        total_rounds=total_rounds,
        seconds=round(seconds, 2),
        remaining_seconds=round(seconds / rounds * (total_rounds - rounds), 1) if training else None,
        served_round=served,
        served_vector=seen.offer.vector if seen.offer is not None else None,
        validation_score=next((row["validation_score"] for row in seen.rows if row["round"] == served), None),
        chosen_by=about.chosen_by,
        population_score=summary.get("population_score"),
        population_score_best=summary.get("population_score_best"),
        measured_on=summary.get("curve_from", "the test set"),
        clients=fleet["clients"] if fleet is not None else None,
        served_share=fleet["served"] / fleet["clients"] if fleet is not None and fleet["served"] is not None else None,
    )
