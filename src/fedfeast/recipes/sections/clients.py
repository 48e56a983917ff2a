"""The clients of a recipe: their data, their budgets, and how examples are divided among them."""

from math import isfinite
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from fedfeast.data import DatasetFacts, Normalisation, facts_of, is_known
from fedfeast.errors import InvalidInput
from fedfeast.population import authors
from fedfeast.recipes.sections.section import Names, Numbers, Section, Share, filled_in


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
        return filled_in(table, "source", {"least_macs": authors.LEAST_MACS, "below_smallest": "lift"})

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
        return filled_in(table, "rule", {"min_shard": authors.LEAST_SHARD})

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
