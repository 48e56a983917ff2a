"""The sections of a recipe: unknown keys, wrong types and values out of range are errors."""

from dataclasses import MISSING, fields
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    create_model,
    model_validator,
)

from fedfeast.data import DatasetFacts, Normalisation, facts_of, is_known
from fedfeast.data.batches import LastBatch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Aggregation, Method, ServerOptimiser, Wire
from fedfeast.federation.local_sgd import Unreached
from fedfeast.federation.server_step import Optimiser
from fedfeast.federation.wire.formats import Format
from fedfeast.methods import find_method
from fedfeast.networks import Branch
from fedfeast.population import authors

Integers = Annotated[tuple[int, ...], Field(strict=False)]
Numbers = Annotated[tuple[float, ...], Field(strict=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class Section(BaseModel):
    """A part of a recipe: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DescriptionSection(Section):
    """What a server must know of data that its fleet's clients alone have."""

    classes: int = Field(ge=1)  # or the size of the vocabulary, the number of labels or of target dimensions
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False, min_length=1)]  # of one example
    kind: Literal["images", "numbers", "tokens"] = "images"  # of one example
    # What is learnt from it.
    task: Literal["classification", "next-token", "multi-label", "regression"] = "classification"
    vocabulary: int | None = Field(None, ge=1)  # of tokens; without it as many as classes

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse what no data set can be."""
        if self.kind == "images" and (len(self.shape) != 3 or self.shape[1] != self.shape[2]):
            raise InvalidInput(
                f"data.description.shape = {list(self.shape)} is of no square images: "
                "write [channels, side, side], or set another data.description.kind."
            )
        if self.task == "next-token" and self.kind != "tokens":
            raise InvalidInput(
                f"data.description.task = 'next-token' is for tokens, and data.description.kind = {self.kind!r}: "
                "set it to tokens."
            )
        if self.vocabulary is not None and self.kind != "tokens":
            raise InvalidInput(
                f"data.description.vocabulary = {self.vocabulary} is of tokens, and data.description.kind = "
                f"{self.kind!r}: leave it out."
            )
        return self

    @property
    def facts(self) -> DatasetFacts:
        """The same as the facts of a data set of which no example is here."""
        channels = 1 if self.kind == "tokens" else self.shape[0]
        return DatasetFacts(
            *(self.classes, channels, self.shape[-1], 0, 0),
            kind=self.kind,
            task=self.task,
            shape=() if self.kind == "images" else self.shape,
            vocabulary=self.vocabulary or 0,
        )

    def refuse_other(self, known: DatasetFacts, name: str) -> None:
        """Refuse a description of data that are another thing than it says."""
        said = self.facts
        for what in ("classes", "kind", "task", "input_shape", "vocabulary"):
            if getattr(said, what) != getattr(known, what):
                raise InvalidInput(
                    f"data.description has {what.replace('_', ' ')} {getattr(said, what)}, and {name} has "
                    f"{getattr(known, what)}: correct it, or leave it out where the data set is known."
                )


class DataSection(Section):
    """Which data set, which examples the server keeps, and of data with clients of their own what these do."""

    name: str  # embedded, official, prepared, or one's own as file.py:NAME
    folder: str | None = None  # where data sets lie; without it $FEDFEAST_DATA, or ~/.fedfeast/data
    validation_examples: int = Field(4000, ge=1)  # that the server keeps to choose the served round by
    calibration_examples: int = Field(1000, ge=2)  # batch statistics need two examples
    split_rule: Literal["balanced", "authors"] = "balanced"  # evenly over classes, or as the paper's authors drew
    split_file: str | None = None  # an npz or CSV file of their indices instead of a draw
    # Of population.source = "data": a share of the clients, or their names.
    held_out_clients: Share | Names = 0.0  # they never train and are a test set of their own
    server_clients: Share | Names = 0.0  # whose examples the server has; without any, some of the pool
    least_examples: int = Field(1, ge=1)  # of training, that a client needs
    small_clients: Literal["exclude", "pool"] = "exclude"  # what becomes of clients with fewer
    most_examples: int | None = Field(None, ge=1)  # of training, that a client uses, evenly over its classes
    # Of numbers and images, per channel; without them published or measured. A server without the data needs them.
    mean: Numbers | None = None
    deviation: Numbers | None = None  # beside the mean
    description: DescriptionSection | None = None  # where the data set is not known here
    _facts: DatasetFacts = PrivateAttr()

    @model_validator(mode="after")
    def _look_up_facts(self, info: ValidationInfo) -> Self:
        """Take the facts that an existing run kept; without them, refuse a name that is no data set here."""
        described = self.description
        if info.context:
            self._facts = info.context
        elif described is not None and not is_known(self.name, self.folder):
            self._facts = described.facts
        else:
            self._facts = facts_of(self.name, self.folder)
            if described is not None:
                described.refuse_other(self._facts, self.name)
        self._refuse_unsuited_normalisation()
        return self

    def _refuse_unsuited_normalisation(self) -> None:
        """Refuse a mean and deviation that do not suit the data, or one without the other."""
        given = {key: getattr(self, key) for key in ("mean", "deviation") if getattr(self, key) is not None}
        for key, values in given.items():
            if self.facts.kind == "tokens":
                raise InvalidInput(f"data.{key} = {list(values)}: tokens are not normalised, so leave it out.")
            if len(values) != self.facts.channels:
                raise InvalidInput(
                    f"data.{key} = {list(values)} has {len(values)} numbers, and examples of {self.name} have "
                    f"{self.facts.channels} channels: give one a channel."
                )
            if not all(isfinite(one) and (key == "mean" or one > 0) for one in values):
                wanted = "finite" if key == "mean" else "positive"
                raise InvalidInput(f"data.{key} = {list(values)}: give {wanted} numbers.")
        if len(given) == 1:
            missing = "deviation" if "mean" in given else "mean"
            raise InvalidInput(f"data.{next(iter(given))} is given without data.{missing}: give both, or neither.")

    @property
    def normalisation(self) -> Normalisation | None:
        """Mean and deviation where they are given."""
        if self.mean is None or self.deviation is None:
            return None
        return Normalisation(self.mean, self.deviation)

    @property
    def facts(self) -> DatasetFacts:
        """Classes, shapes and numbers of examples."""
        return self._facts


class PopulationSection(Section):
    """Who takes part: drawn from Zipf, the paper's as guessed or as its authors drew, a CSV, the data's, a fleet's."""

    source: Literal["zipf", "paper", "authors", "file", "data", "fleet"] = "zipf"  # where budgets come from
    file: str | None = None  # a CSV file with a column budget_macs
    num_clients: int = Field(100, ge=1, le=100_000_000)  # that are drawn
    exponent: float = Field(1.2, ge=0)  # of Zipf: the greater, the more clients have small budgets
    num_ranks: int | None = Field(None, ge=1, le=100_000_000)  # that Zipf draws from; without it one for each client
    least_macs: float = Field(25e6, gt=0)  # the budget of the lowest rank
    greatest_macs: float = Field(1500e6, gt=0)  # and of the highest
    cap_macs: float = Field(600e6, gt=0)  # a greater budget gives no greater share of the data
    gamma: float = Field(1.0, ge=0)  # how data follow budgets: 0 not at all, 1 in proportion
    correlation: float | None = Field(None, ge=-1, le=1)  # of budgets with data, by ranks: the data's clients alone
    pooled: bool = False  # all training clients of the data as one that has greatest_macs: an upper bound
    # A client that affords no network: refused, left out, or given the smallest.
    below_smallest: Literal["error", "exclude", "lift"] = "error"

    @model_validator(mode="before")
    @classmethod
    def _as_the_authors(cls, table: Any) -> Any:
        """Fill in what the authors' draw has other values of."""
        return _filled_in(table, "source", {"least_macs": authors.LEAST_MACS, "below_smallest": "lift"})

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the chosen source would silently ignore; a file replaces the whole draw."""
        drawn = ("num_clients", "exponent", "num_ranks", "least_macs", "greatest_macs")
        natural = ("correlation", "pooled")
        idle = {
            "zipf": ("file", *natural),
            "paper": ("file", *natural, *drawn),
            "authors": ("file", *natural),
            "file": natural,
            "data": ("num_clients", "gamma", *(("correlation",) if self.file is not None else ())),
            "fleet": natural,
        }[self.source]
        for name in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"population.{name} = {getattr(self, name)!r} has no effect with "
                    f"population.source = {self.source!r}: leave it out, or choose the source that uses it."
                )
        given = next((name for name in ("file", "correlation") if getattr(self, name) is not None), None)
        if self.pooled and given is not None:
            raise InvalidInput(
                f"population.{given} = {getattr(self, given)!r} has no effect with population.pooled = true, "
                "where everyone is one client with population.greatest_macs: leave one of them out."
            )
        return self


class PartitionSection(Section):
    """How unequal the clients' data are; give alpha_eff, alpha_data or alpha_client."""

    # Mean concentration of a client in a class: the smaller, the more unequal.
    alpha_eff: float | None = Field(None, gt=0)
    alpha_data: float | None = Field(None, gt=0)  # of one example: alpha_eff is it times examples / (classes x clients)
    alpha_client: float | None = Field(None, gt=0)  # of every client in every class, whatever their shares and sizes
    min_shard: int = Field(1, ge=1)  # examples that every client has at least
    rule: Literal["dirichlet", "authors"] = "dirichlet"  # authors: their draw, repeated until no shard is too small
    loaded: Literal["as-designed", "as-loaded"] = "as-designed"  # as-loaded: the index slip of the authors' loader
    class_order: Literal["label", "permuted"] = "label"  # in which the Dirichlet rule divides classes
    file: str | None = None  # whose each training example is, as npz or CSV, instead of a draw
    unused: Literal["error", "leave"] = "error"  # what becomes of training examples that the file gives to nobody

    @model_validator(mode="before")
    @classmethod
    def _as_the_authors(cls, table: Any) -> Any:
        """Fill in what the authors' rule has another value of."""
        return _filled_in(table, "rule", {"min_shard": authors.LEAST_SHARD})

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the chosen rule or file would silently ignore; a file replaces the whole draw."""
        if self.loaded == "as-loaded" and (self.rule != "authors" or self.file is not None):
            given = "partition.file" if self.file is not None else f"partition.rule = {self.rule!r}"
            raise InvalidInput(
                f"partition.loaded = 'as-loaded' has no effect with {given}: set partition.rule=authors without a "
                "file, or leave it out."
            )
        if self.class_order == "permuted" and (self.rule != "dirichlet" or self.file is not None):
            given = "partition.file" if self.file is not None else f"partition.rule = {self.rule!r}"
            raise InvalidInput(
                f"partition.class_order = 'permuted' has no effect with {given}: leave it out, or set "
                "partition.rule=dirichlet without a file."
            )
        if self.unused == "leave" and self.file is None:
            raise InvalidInput("partition.unused = 'leave' has no effect without partition.file: leave it out.")
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_alpha(cls, table: Any) -> Any:
        """Fill in the paper's alpha_eff where none is given; refuse two."""
        if not isinstance(table, dict):
            return table
        table = {key: value for key, value in table.items() if value is not None}
        one, *others = [name for name in ("alpha_eff", "alpha_data", "alpha_client") if name in table] or ["alpha_eff"]
        for other in others:
            raise InvalidInput(
                f"partition.{one} = {table[one]} and partition.{other} = {table[other]} "
                "set the same thing: give one of them (set the other to none)."
            )
        return {"alpha_eff": 0.45, **table} if one == "alpha_eff" else table


class NetworkSection(Section):
    """The elastic network: the ResNet's space, or a builder; image size, channels and classes follow from the data."""

    builder: str | None = None  # a shipped one's name, or one's own as file.py:NAME
    # Of the builder's arguments, in place of its own.
    choices: dict[str, Annotated[list[int | float], Field(min_length=1)]] = Field(default_factory=dict)
    options: dict[str, int | float | str | bool] = Field(default_factory=dict)  # of the builder, beside its choices
    weights: str | None = None  # where training begins: a bundle, a run folder or a state dict
    stem_channels: int = 64  # of the first convolution
    stage_channels: Integers = (128, 256, 512, 1024)  # of the stages, at their full width
    depths: Integers = (0, 1, 2, 3, 4, 5, 6, 7, 8)  # blocks beyond a stage's first that it may have
    expansions: Numbers = (0.10, 0.14, 0.18, 0.22, 0.25)  # of a block's inner channels
    widths: Numbers = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of a stage's channels
    stem_stride: int = 1  # 2 halves large images at once
    stage_strides: Integers = (1, 2, 2, 2)  # of each stage's first block
    channel_divisor: int = 8  # numbers of channels are multiples of it
    branch: Branch = "rectified"  # before the addition too, or signed: after it alone
    branch_scale: float = 1.0  # what the last norm of a residual branch starts with, the compared methods' too


class ResNetSection(Section):
    """The network of the compared methods: HeteroFL, ScaleFL, FIARSE, FjORD, FedRolex."""

    stage_channels: Integers = (64, 128, 256, 512)  # of the stages
    blocks: Integers = (2, 2, 2, 2)  # of the stages
    stage_strides: Integers = (1, 2, 2, 2)  # of each stage's first block
    stem_stride: int = 1  # 2 halves large images at once


class VariantsSection(Section):
    """The cache: a packaged name, a CSV file's path, "searched" for the recipe's targets, or a builder's "members"."""

    cache: str = "cifar100-56"  # the networks that are trained and served
    ties: Literal["refuse", "keep"] = "refuse"  # of equal MACs: an error, or all rows count, in the file's order
    score: str | None = None  # by which members are chosen, as file.py:NAME; without it by parameters for their MACs
    # What a search looks for: the fittest networks within these MACs.
    num_targets: int = Field(56, ge=1)
    spacing: Literal["even", "geometric"] = "even"  # of the targets: equal steps, or equal ratios
    least_target_macs: float = Field(25e6, gt=0)  # the first target
    greatest_target_macs: float = Field(600e6, gt=0)  # and the last


class TrainingSection(Section):
    """Rounds, cohorts and the clients' optimiser."""

    rounds: int = Field(4000, ge=1)  # of training
    clients_per_round: int = Field(10, ge=1)  # that are drawn for a round; poisson cohorts have so many on average
    cohort: Literal["named", "authors", "poisson"] = "named"  # by the seed; by the round alone; each client by itself
    local_epochs: int = Field(1, ge=1)  # over its data that a client trains in a round
    batch_size: int = Field(64, ge=2)  # batch statistics need two examples
    learning_rate: float = Field(0.1, gt=0)  # of the clients' optimiser, at its highest
    schedule: Literal["cosine", "constant"] = "cosine"  # of the rate over the rounds: falling to nothing, or as it is
    warmup_rounds: int = Field(0, ge=0)  # in which the rate rises from a tenth of the schedule's to all of it
    weight_decay: float = Field(5e-4, ge=0)  # of every position that a client was sent
    clip_norm: float = Field(10.0, gt=0)  # inf: nothing is clipped
    momentum: float = Field(0.0, ge=0, lt=1)  # of the clients' optimiser, new in every round
    unreached: Unreached = "decay"  # tensors that no pass of a step goes through: decayed, or kept as they are
    class_prior: float = Field(0.0, ge=0)  # times the log of a client's class frequencies, added to its logits
    last_batch: LastBatch = "topped-up"  # of an epoch: filled up from fresh permutations, or only what is left
    least_distinct: int = Field(1, ge=1)  # examples that a batch has to choose from; with fewer it is left out

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse batches that could never hold as many examples as they must."""
        if self.least_distinct > self.batch_size:
            raise InvalidInput(
                f"training.least_distinct = {self.least_distinct} is more than a batch holds (training.batch_size = "
                f"{self.batch_size}): lower the one or raise the other."
            )
        if self.warmup_rounds and self.warmup_rounds >= self.rounds:
            raise InvalidInput(
                f"training.warmup_rounds = {self.warmup_rounds} leaves nothing of training.rounds = {self.rounds}: "
                "give fewer than there are rounds."
            )
        return self


class AugmentationSection(Section):
    """What happens to an input and a mini-batch before training; what is no image goes through nothing by default."""

    crop_padding: int = Field(4, ge=0)  # pixels by which an image may be moved either way
    crop_fill: Literal["black", "reflect"] = "black"  # beyond the edge: nothing, or the image mirrored
    flip: bool = True  # whether images are mirrored, half of them
    randaugment: Annotated[tuple[int, int], Field(strict=False)] = (
        2,
        6,
    )  # operations, magnitude; 0, 0 is none
    mixing: Literal["alternate", "coin", "off"] = "alternate"  # Mixup and CutMix by turns, or a coin for each batch
    mixup_beta: float = Field(1.0, gt=0)  # of the Beta distribution that Mixup draws from
    cutmix_beta: float = Field(1.0, gt=0)  # and of the one that CutMix draws from
    mixing_until: float = Field(1.0, gt=0, le=1)  # share of the rounds after which images are no longer mixed
    # Of sequences, along their last axis (docs/data.md): places by which one may be moved either way.
    time_shift: int = Field(0, ge=0)
    noise: float = Field(0.0, ge=0)  # deviation of what is added to normalised numbers
    mask_share: float = Field(0.0, ge=0, lt=1)  # of the last axis: one span at its mean; of token ids single ones


class AggregationSection(Section):
    """How answers are merged, and which are refused; multiples are of the usual norm of a client's change."""

    # Position by position, over the clients that were sent it.
    rule: Literal["mean", "clipped-mean", "trimmed-mean", "median"] = "mean"
    clip_multiple: float = Field(1.5, gt=0)  # of clipped-mean: longer changes are shortened to it
    trim_share: float = Field(0.2, gt=0, lt=0.5)  # at either end
    refuse_multiple: float | None = Field(None, gt=0)  # without it no norm is too large
    weigh: Literal["method", "alike"] = "method"  # what an answer weighs: as the method says, or all the same
    weight_cap: float | None = Field(None, ge=1)  # times the cohort's median weight: no answer weighs more
    # Whether an answer counts at a position by the share of the client's steps that activated it; else fully.
    activated_share: bool = False

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse what no aggregation can be."""
        Aggregation(**self.model_dump())
        return self


class ServerSection(Section):
    """What the server does with a merged round; by default the merged vector is the next global one."""

    optimiser: Annotated[Optimiser, BeforeValidator(lambda value: value or "none")] = "none"  # unset: none
    learning_rate: float | None = Field(None, gt=0)  # of momentum and adam; without it 1 and 0.01
    momentum: float = Field(0.9, ge=0, lt=1)  # of momentum
    betas: Numbers = (0.9, 0.99)  # of adam's means of changes and of their squares
    epsilon: float = Field(1e-3, gt=0)  # of adam
    lookahead: float = Field(0.0, ge=0, lt=1)  # of its last move, by which what is sent lies ahead of the global vector
    average: float = Field(0.0, ge=0, lt=1)  # what a round leaves of the running average; 0: none is kept

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the chosen optimiser would silently ignore."""
        used = {"none": (), "momentum": ("learning_rate", "momentum"), "adam": ("learning_rate", "betas", "epsilon")}
        for name in ("learning_rate", "momentum", "betas", "epsilon"):
            given = getattr(self, name)
            if name not in used[self.optimiser] and given != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"server.{name} = {list(given) if name == 'betas' else given} has no effect with server.optimiser "
                    f"= {self.optimiser!r}: leave it out, or choose the optimiser that uses it."
                )
        ServerOptimiser(**self.model_dump())
        return self


class AdversarySection(Section):
    """Clients that lie, for tests and studies: they send their change inverted and enlarged."""

    share: float = Field(0.0, ge=0, lt=1)  # of the clients that take part
    enlargement: float = Field(10.0, gt=0)  # by which their change is multiplied
    claimed_multiple: float = Field(1.0, ge=1)  # of the examples they have: what they say they have


class PrivacySection(Section):
    """Clipping and Gaussian noise, on every client's update or once on their sum; off without a clip_norm."""

    mechanism: Literal["local", "central"] = "local"  # the clients add noise, or a server that they trust
    clip_norm: float | None = Field(None, gt=0)  # of a client's change, before noise is added
    noise_multiplier: float = Field(1.0, gt=0)  # deviation over sensitivity: 2 x clip_norm; central most_weight x it
    delta: float = Field(1e-5, gt=0, lt=1)  # of (epsilon, delta)
    usual_examples: float | None = Field(None, gt=0)  # central: who has so many weighs 1; without it all weigh 1
    most_weight: float = Field(1.0, gt=0)  # central: of any client, with usual_examples
    least_holders: float = Field(1.0, gt=0)  # central: what a position's sum is divided by at least


class WireSection(Section):
    """In how many bytes weights go to clients and their changes come back; by default every bit arrives."""

    down: Format = "lossless"  # what the server sends: as the weights are, or in fewer bits
    up: Format = "lossless"  # what a client returns: its weights as they are, or their change in fewer bits
    up_topk: float | None = Field(None, gt=0, lt=1)  # share of a change's values that are returned, the largest
    error_feedback: bool = True  # whether a client adds to its next change what rounding left out of its last
    down_deltas: bool = False  # whether a client that still holds its last weights is sent the difference to them
    state_gib: float = Field(4.0, gt=0)  # for what is remembered of clients; beyond it the longest unused is forgotten

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse what no wire can be."""
        Wire(**self.model_dump())
        return self


def _read_sizes(value: Any) -> Any:
    """Return which sizes are validated, an unset field's as none; refuse what is neither a word for it nor a number."""
    value = "none" if value is None else value
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not is_count and value not in ("auto", "all", "none"):
        raise InvalidInput(f"evaluation.sizes = {value!r}: give auto, all, none, or a number of sizes from 1 on.")
    return value


class EvaluationSection(Section):
    """How often the served variants are validated, by whom, and by which figure."""

    every_rounds: int = Field(50, ge=1)  # and after the last
    by: Literal["server", "clients"] = "server"  # on the server's examples, or on those that clients keep back
    client_share: float = Field(0.1, gt=0, lt=1)  # of its training examples that a client keeps back for it
    metric: str | None = None  # one of the task's; without it the task's first
    # By what the served round is chosen: the population score, the mean of some networks, or the largest alone.
    selection: Literal["population-score", "anchors", "largest"] = "population-score"
    anchors: Numbers | None = None  # of that mean: rows of the served networks, counted from 0, or MACs
    # What a client counts for in the population score that chooses: the largest network it affords, or the best.
    score: Literal["largest", "best"] = "largest"
    # Of which sizes a validation keeps the values: auto takes all where that costs little of training, else a few.
    sizes: Annotated[Literal["auto", "all", "none"] | int, BeforeValidator(_read_sizes)] = "auto"
    calibration_augmented: bool = False  # whether served statistics are measured on images as training sees them
    calibration_batch: int | None = Field(None, ge=2)  # without it batches as equal as can be, of at most 250

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the others make idle."""
        if self.selection == "anchors" and not self.anchors:
            raise InvalidInput(
                "evaluation.selection = 'anchors' needs evaluation.anchors: give rows of the served networks, or MACs."
            )
        if self.anchors is not None and min(self.anchors, default=0) < 0:
            raise InvalidInput(f"evaluation.anchors = {list(self.anchors)}: give rows from 0 on, or MACs.")
        idle = {
            "anchors": self.selection != "anchors" and self.anchors is not None,
            "score": self.selection != "population-score" and self.score != "largest",
        }
        for name in (name for name, has_no_effect in idle.items() if has_no_effect):
            raise InvalidInput(
                f"evaluation.{name} = {getattr(self, name)!r} has no effect with evaluation.selection = "
                f"{self.selection!r}: leave it out, or choose the selection that uses it."
            )
        of_server = {"selection": "population-score", "calibration_augmented": False, "calibration_batch": None}
        for name, usual in of_server.items():
            if self.by == "clients" and getattr(self, name) != usual:
                raise InvalidInput(
                    f"evaluation.{name} = {getattr(self, name)!r} needs the server's examples, and evaluation.by = "
                    "'clients' has none: leave it out, or set evaluation.by=server."
                )
        if self.by == "clients" and self.sizes not in ("auto", "none"):
            raise InvalidInput(
                f"evaluation.sizes = {self.sizes!r} needs the server's examples: with evaluation.by = 'clients' it is "
                "auto, the sizes that clients are asked for anyway, or none."
            )
        return self


class CheckpointSection(Section):
    """How often the run is saved."""

    every_rounds: int = Field(10, ge=1)  # and after the last


class FleetSection(Section):
    """How long a fleet's rounds wait, for how many, and in which precision slices travel."""

    mode: Literal["synchronous", "buffered"] = "synchronous"  # a merge takes the answers of all, or the first ones
    buffer: int | None = Field(None, ge=1)  # answers of a buffered merge; without it half of clients_per_round
    staleness_exponent: float = Field(0.5, ge=0)  # p: what left a merges ago counts for 1 / (1 + a)^p
    deadline_seconds: float = Field(600.0, gt=0)  # of a round, from the last slice sent; buffered: of an answer
    least_answers: int = Field(1, ge=1)  # that a round needs before its deadline
    least_clients: int = Field(1, ge=1)  # that must be there before a round begins
    most_examples: int = Field(10**9, ge=1)  # that a client may declare, since its answer weighs by them
    wire: Literal["lossless", "float32", "bfloat16", "float16"] = "lossless"  # lossless: as the weights are

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse settings of buffered merges where rounds are synchronous."""
        for name in ("buffer", "staleness_exponent"):
            if self.mode == "synchronous" and getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"fleet.{name} = {getattr(self, name)} has no effect with fleet.mode = 'synchronous': leave it "
                    "out, or set fleet.mode=buffered."
                )
        return self


class SimulationSection(Section):
    """How fast simulated clients are; without speeds nobody looks at a clock."""

    speeds: str | None = None  # equal, pareto, or a CSV file with the columns name and macs_per_second
    macs_per_second: float = Field(1e9, gt=0)  # of all, or of the fastest
    tail: float = Field(1.5, gt=0)  # of pareto: a share of x^-tail is x times slower than the fastest, or more

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse settings that the chosen speeds would silently ignore."""
        idle = {"tail": self.speeds != "pareto", "macs_per_second": self.names_file}
        for name in (name for name, has_no_effect in idle.items() if has_no_effect):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"simulation.{name} = {getattr(self, name):g} has no effect with simulation.speeds = "
                    f"{self.speeds or 'none'}: leave it out, or choose the speeds that use it."
                )
        return self

    @property
    def names_file(self) -> bool:
        """Whether the speeds are those of a file."""
        return self.speeds not in (None, "equal", "pareto")


class EngineSection(Section):
    """Where and in which precision rounds run."""

    name: Literal["auto", "eager", "graphs"] = "auto"  # auto: graphs on a CUDA device
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a CUDA device where there is one
    # Of weights; bfloat16 is float32 with activations in bfloat16. auto: bfloat16 on graphs, float32 on eager.
    precision: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    threads: int | None = Field(None, ge=1, le=1024)  # of a CPU; without it all cores
    memory_gib: float | None = Field(None, gt=0)  # of a CUDA device that this run may take; None: all of it


def _filled_in(table: Any, key: str, values: dict[str, Any]) -> Any:
    """Return a section's table with values for what it leaves out, where it chooses the authors' way."""
    if not isinstance(table, dict) or table.get(key) != "authors":
        return table
    return {**values, **{name: value for name, value in table.items() if value is not None}}


def method_section(name: str) -> type[Section]:
    """Return the section of one method: its name and its hyper-parameters with their defaults."""
    return _section_of(name, find_method(name))


@cache
def _section_of(name: str, method: type[Method]) -> type[Section]:
    hints = get_type_hints(method)
    options: dict[str, Any] = {"name": (Literal[name], name)}
    options |= {
        field.name: (Annotated[hints[field.name], BeforeValidator(_as_tuples)], field.default)
        for field in fields(method)  # type: ignore[arg-type]  # every method is a dataclass
        if field.default is not MISSING
    }
    return create_model(f"{name}Section", __base__=Section, **options)


def _as_tuples(value: Any) -> Any:
    """Return a list of a recipe, and lists in it, as tuples."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
