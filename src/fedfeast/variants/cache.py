"""The fixed cache of variants that are trained and served (Sec. 3.2), and its CSV file."""

import csv
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, ElasticResNet

Number = TypeVar("Number", int, float)

COLUMNS = ("macs", "params", "conv_macs", "d", "e", "w_indices")


@dataclass(frozen=True)
class Variant:
    """One served network: its architecture and what it costs."""

    architecture: Architecture
    macs: int
    parameters: int

    @classmethod
    def of(cls, network: ElasticResNet, architecture: Architecture) -> "Variant":
        """Count an architecture's cost in this network."""
        network.space.validate(architecture)
        return cls(architecture, network.macs(architecture), network.parameters(architecture))


@dataclass(frozen=True)
class VariantCache:
    """The variants, sorted by MACs."""

    variants: tuple[Variant, ...]

    @classmethod
    def of(cls, variants: Sequence[Variant]) -> "VariantCache":
        """Sort the variants by MACs; one of each MAC count, so that 'the largest' is never a tie."""
        ordered = tuple(sorted(variants, key=lambda variant: variant.macs))
        for one, following in pairwise(ordered):
            if one.macs == following.macs:
                raise InvalidInput(f"two variants cost {one.macs} MACs: keep one of them in the cache.")
        if not ordered:
            raise InvalidInput("the variant cache is empty: give at least one variant.")
        return cls(ordered)

    def __len__(self) -> int:
        return len(self.variants)

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants)

    def __getitem__(self, position: int) -> Variant:
        return self.variants[position]

    def affordable(self, budget_macs: float) -> tuple[Variant, ...]:
        """Return A_i: the variants whose MACs do not exceed the budget, least first (Eq. 3)."""
        return self.variants[: bisect_right(self.variants, budget_macs, key=lambda variant: variant.macs)]


def packaged_caches() -> tuple[str, ...]:
    """Return the names of the caches that ship with the package."""
    files = resources.files("fedfeast.variants").joinpath("caches").iterdir()
    return tuple(sorted(file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")))


def read_cache(name_or_path: str, network: ElasticResNet) -> VariantCache:
    """Read a packaged cache by name or a CSV file by path, checked row by row against the network."""
    if name_or_path in packaged_caches():
        text = resources.files("fedfeast.variants").joinpath("caches", f"{name_or_path}.csv").read_text()
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise InvalidInput(
                f"variant cache {name_or_path!r} is neither a file nor one of {', '.join(packaged_caches())}: "
                "set variants.cache to one of those names or to a CSV file."
            )
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    rows = csv.DictReader(text.splitlines())
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise InvalidInput(
            f"variant cache {name_or_path!r} lacks the column {missing[0]}: it needs {', '.join(COLUMNS)}."
        )
    try:
        return VariantCache.of([_read_row(row, network, f"{name_or_path}:{rows.line_num}") for row in rows])
    except csv.Error as error:
        raise InvalidInput(f"variant cache {name_or_path!r} is damaged ({error}): restore the file.") from error


def write_cache(
    cache: VariantCache,
    network: ElasticResNet,
    path: Path,
    further: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Write the cache, with further columns if wanted, as a CSV file that read_cache reads."""
    columns = further or {}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *columns])
        for row, variant in enumerate(cache):
            architecture = variant.architecture
            costs = (variant.macs, variant.parameters, network.convolution_macs(architecture))
            choices = (architecture.depths, architecture.expansions, architecture.width_indices)
            writer.writerow([*costs, *map(list, choices), *(values[row] for values in columns.values())])


def _parse_list(text: str | None, kind: type[Number]) -> tuple[Number, ...]:
    """Read a list like [3, 7, 6, 7] of one kind of number."""
    values = json.loads(text or "")
    if not isinstance(values, list) or any(type(value) not in (int, kind) for value in values):
        raise ValueError(f"{text!r} is no list of {kind.__name__}")
    return tuple(kind(value) for value in values)


def _read_row(row: Mapping[str, str | None], network: ElasticResNet, place: str) -> Variant:
    try:
        depths, width_indices = (_parse_list(row[column], int) for column in ("d", "w_indices"))
        architecture = Architecture(depths, _parse_list(row["e"], float), width_indices)
        macs, parameters, convolution_macs = (int(row[column] or "") for column in ("macs", "params", "conv_macs"))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"variant cache {place} is damaged ({list(row.values())}): restore the file or build it again."
        ) from error
    variant = Variant.of(network, architecture)
    # Only the head depends on the classes, so one cache serves data sets of any number of classes.
    head_inputs = network.space.stage_width(architecture, network.space.num_stages - 1)
    classes, rest = divmod(macs - convolution_macs, head_inputs)
    recorded_parameters = variant.parameters + (classes - network.space.classes) * (head_inputs + 1)
    if rest or convolution_macs != network.convolution_macs(architecture) or parameters != recorded_parameters:
        raise InvalidInput(
            f"variant cache {place} records {macs} MACs and {parameters} parameters, but this network's "
            f"{architecture} has {variant.macs} and {variant.parameters}: "
            "the cache is damaged or belongs to another space."
        )
    return variant
