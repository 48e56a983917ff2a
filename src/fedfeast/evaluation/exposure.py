"""How much data reaches each slice region: Propositions 1 and 2 and the scales of Theorem 1 (Secs. 3.3 and 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.slice_regions import Part, SliceRegions, expected_passes, part_of
from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.variants import VariantCache

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Exposure:
    """The slice regions of a cache and the clients that may train them."""

    regions: SliceRegions
    affordable: NDArray[np.int64]  # (clients,) how many variants each affords
    num_examples: Floats  # (clients,) n_i
    rule: TrainingRule = "full"

    @classmethod
    def of(
        cls,
        regions: SliceRegions,
        cache: VariantCache,
        budgets_macs: ArrayLike,
        num_examples: ArrayLike,
        rule: TrainingRule = "full",
    ) -> "Exposure":
        """Count what each client affords; both arrays hold one entry per client."""
        affordable = np.searchsorted([variant.price for variant in cache], np.asarray(budgets_macs), side="right")
        examples = np.asarray(num_examples, dtype=np.float64)
        if affordable.shape != examples.shape:
            raise InvalidInput(
                f"There are {affordable.size} budgets and {examples.size} numbers of examples: give one per client."
            )
        if examples.min(initial=0) < 0 or not examples.sum() > 0:
            raise InvalidInput("The numbers of examples are negative or all 0: give the realized size of each shard.")
        return cls(regions, affordable, examples, rule)

    @property
    def num_participants(self) -> int:
        """The clients that cohorts are drawn from: those that afford a variant."""
        return int((self.affordable > 0).sum())

    @property
    def served(self) -> NDArray[np.bool_]:
        """Which regions some variant that some client affords activates."""
        return np.asarray(self.regions.activated_from <= self.affordable.max(initial=0))

    def routed_sum(self, amounts: ArrayLike) -> Floats:
        """Return sum_i amount_i r_i(u) per region; with amounts q(gamma) this is W_route(gamma)."""
        return np.asarray(self._upper_tails(amounts)[self.regions.routed_from])

    def reached_sum(self, amounts: ArrayLike) -> Floats:
        """Return the amounts per region of the clients one of whose variants activates it."""
        return np.asarray(self._upper_tails(amounts)[self.regions.activated_from])

    def activation_sum(self, amounts: ArrayLike) -> Floats:
        """Return sum_i amount_i h_i(u) per region."""
        num_variants = self.regions.num_variants
        by_affordable = np.bincount(self.affordable, amounts, num_variants + 1)
        return np.asarray(self.regions.activates @ (expected_passes(self.rule, self.regions.networks) @ by_affordable))

    def expected_routed_mass(self, cohort_size: int) -> Floats:
        """Return the expected number of a cohort's examples whose clients receive each region (Prop. 2)."""
        return self._cohort_share(cohort_size) * self.routed_sum(self.num_examples)

    def expected_activation_mass(self, cohort_size: int) -> Floats:
        """Return the same weighted by the expected activations per local step (Prop. 2)."""
        return self._cohort_share(cohort_size) * self.activation_sum(self.num_examples)

    def _upper_tails(self, amounts: ArrayLike) -> Floats:
        """Return the amounts of the clients that afford at least 0, 1, ... variants, and 0 for one too many."""
        by_affordable = np.bincount(self.affordable, amounts, self.regions.num_variants + 2)
        return np.asarray(np.cumsum(by_affordable[::-1])[::-1])

    def _cohort_share(self, cohort_size: int) -> float:
        return min(cohort_size / max(self.num_participants, 1), 1.0)


@dataclass(frozen=True, eq=False)
class AggregationWeights:
    """beta_i of the regions that need a given number of affordable variants, estimated over cohorts."""

    means: Floats  # (clients,)
    standard_errors: Floats  # (clients,)


@dataclass(frozen=True, eq=False)
class ComputationScales:
    """psi of every routing pattern; all the regions that the same clients receive share one."""

    routed_from: NDArray[np.int64]  # (patterns,) rising
    num_routers: NDArray[np.int64]  # (patterns,) clients that receive it
    means: Floats  # (patterns,) in local steps
    standard_errors: Floats  # (patterns,)
    served: NDArray[np.bool_]  # (patterns,) whether it holds a served region

    @property
    def least(self) -> int:
        """The served pattern of psi_min."""
        return int(np.where(self.served, self.means, np.inf).argmin())

    @property
    def psi_min(self) -> float:
        """The least psi over served positions."""
        return float(self.means[self.least])

    @property
    def psi_max(self) -> float:
        """The greatest psi over served positions."""
        return float(self.means[self.served].max())


def estimate_weights(
    exposure: Exposure, routed_from: int, cohort_size: int, num_draws: int, generator: np.random.Generator
) -> AggregationWeights:
    """Estimate beta_i for the regions of one routing pattern."""
    clients, weights = _draw_weights(exposure, _routers(exposure, routed_from), cohort_size, num_draws, generator)
    size = exposure.affordable.size
    means = np.bincount(clients.ravel(), weights.ravel(), size) / num_draws
    squares = np.bincount(clients.ravel(), weights.ravel() ** 2, size) / num_draws
    variances = np.maximum(squares - means**2, 0)  # rounding may leave a constant just below 0
    return AggregationWeights(means, np.sqrt(variances / (num_draws - 1)))


def estimate_scales(
    exposure: Exposure, local_steps: ArrayLike, cohort_size: int, num_draws: int, generator: np.random.Generator
) -> ComputationScales:
    """Estimate psi_u = sum_i beta_i(u) B_i for every routing pattern; local_steps holds B_i per client."""
    steps = np.asarray(local_steps, dtype=np.float64)
    if steps.shape != exposure.affordable.shape:
        raise InvalidInput(f"There are {steps.size} numbers of local steps for {exposure.affordable.size} clients.")
    if not exposure.num_participants:
        raise InvalidInput("No client affords a variant: give a cache whose smallest variant fits some budget.")
    patterns = np.unique(exposure.regions.routed_from)
    num_routers = np.array([(exposure.affordable >= pattern).sum() for pattern in patterns])
    estimates = {0: (0.0, 0.0)}
    # Routers are upper tails of the budgets (Prop. 1), so equally many are the same clients.
    for pattern, number in zip(patterns, num_routers, strict=True):
        if int(number) not in estimates:
            routers = _routers(exposure, int(pattern))
            clients, weights = _draw_weights(exposure, routers, cohort_size, num_draws, generator)
            scales = (weights * steps[clients]).sum(axis=1)
            estimates[int(number)] = (scales.mean(), scales.std(ddof=1) / np.sqrt(num_draws))
    means, errors = np.array([estimates[int(number)] for number in num_routers]).T
    served = np.isin(patterns, exposure.regions.routed_from[exposure.served])
    return ComputationScales(patterns, num_routers, means, errors, served)


def _routers(exposure: Exposure, routed_from: int) -> NDArray[np.int64]:
    return np.flatnonzero(exposure.affordable >= routed_from)


def _draw_weights(
    exposure: Exposure,
    routers: NDArray[np.int64],
    cohort_size: int,
    num_draws: int,
    generator: np.random.Generator,
) -> tuple[NDArray[np.int64], Floats]:
    """Draw routers and weights, both (draws, routers in a cohort at most); a client's weights average to beta_i."""
    if cohort_size < 1 or num_draws < 2:
        raise InvalidInput(f"Cohorts of {cohort_size} clients, drawn {num_draws} times: give at least 1 and 2.")
    chances = _router_chances(exposure.num_participants, len(routers), cohort_size)
    # A random order's first k are k uniform routers, so one draw serves every k and each k's chance is exact.
    drawn = [generator.choice(len(routers), len(chances), replace=False) for _ in range(num_draws)]
    clients = routers[np.stack(drawn)]
    examples = exposure.num_examples[clients]
    totals = np.cumsum(examples, axis=1)
    per_example = np.divide(chances, totals, out=np.zeros_like(totals), where=totals > 0)
    return clients, examples * np.cumsum(per_example[:, ::-1], axis=1)[:, ::-1]


def _router_chances(num_clients: int, num_routers: int, cohort_size: int) -> Floats:
    """Return the chances that a uniform cohort holds exactly 1, 2, ... routers."""
    size = min(cohort_size, num_clients)
    others, cohorts = num_clients - num_routers, comb(num_clients, size)
    most = min(num_routers, size)
    return np.array([comb(num_routers, k) * comb(others, size - k) / cohorts for k in range(1, most + 1)])


@dataclass(frozen=True)
class BoundCoefficients:
    """What multiplies the unknowns in the bound of Theorem 1."""

    sum_learning_rates: float  # H_T
    sum_squared_learning_rates: float  # Q_T
    initial_gap: float  # 1 / (psi_min H_T), of Delta_F
    discrepancy: float  # 1 / psi_min^2, of epsilon^2
    noise: float  # Q_T / (psi_min H_T), of L_F (epsilon^2 + sigma_round^2)


def bound_coefficients(psi_min: float, learning_rates: Sequence[float]) -> BoundCoefficients:
    """Return Theorem 1's coefficients for a schedule of one learning rate per round."""
    total, squared = float(np.sum(learning_rates)), float(np.sum(np.square(learning_rates)))
    if not (psi_min > 0 and total > 0):
        raise InvalidInput(f"psi_min = {psi_min} and learning rates that sum to {total}: both must be positive.")
    return BoundCoefficients(total, squared, 1 / (psi_min * total), psi_min**-2, squared / (psi_min * total))


@dataclass(frozen=True)
class Reach:
    """Shares from 0 to 1, averaged over the parameters of a part, that belong to the clients reaching them."""

    clients: float
    examples: float  # of the realized n_i
    targets: float  # of q(gamma)


@dataclass(frozen=True)
class PartCoverage:
    """How much of a stem, block or head is sent and trained, and by how much of the population."""

    part: Part
    parameters: int
    routed_parameters: int  # that some client receives
    activated_parameters: int  # that one of some client's variants activates
    routed: Reach
    activated: Reach


def measure_coverage(exposure: Exposure, target_shares: ArrayLike) -> tuple[PartCoverage, ...]:
    """Return the coverage by stage and block, in forward order; target_shares are q(gamma) per client."""
    regions, sizes = exposure.regions, exposure.regions.num_parameters
    tensor_parts = [part_of(name) for name in regions.tensor_names]
    parts = list(dict.fromkeys(tensor_parts))
    place = np.array([parts.index(part) for part in tensor_parts])[regions.tensors]  # (regions,)
    totals = np.bincount(place, sizes)
    present = np.ones_like(exposure.num_examples)
    amounts = (present / present.size, exposure.num_examples / exposure.num_examples.sum(), np.asarray(target_shares))
    routed, activated = (
        np.array([np.bincount(place, sizes * measure(amount)) / totals for amount in amounts]).T.tolist()
        for measure in (exposure.routed_sum, exposure.reached_sum)
    )
    received = np.bincount(place, sizes * (exposure.routed_sum(present) > 0)).astype(int).tolist()
    trained = np.bincount(place, sizes * exposure.served).astype(int).tolist()
    return tuple(
        PartCoverage(part, int(totals[row]), received[row], trained[row], Reach(*routed[row]), Reach(*activated[row]))
        for row, part in enumerate(parts)
    )
