"""Several processes or GPUs: each rank trains a share of the cohort, and one sum brings the answers together."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fedfeast.data import Preparation
from fedfeast.engines.ranks import Ranks
from fedfeast.evaluation import Curve, Validation
from fedfeast.federation import (
    Accumulator,
    Assignment,
    BufferedAnswers,
    Carried,
    Collected,
    Engine,
    Method,
    OperatingPoint,
    RoundOrder,
)

PASS_MACS = 30e6  # what a pass costs beside its arithmetic, as MACs of a CPU core; counts for small networks alone


class DistributedEngine(Engine):
    """Runs a round on every rank with an engine of its own; all ranks end with the same global vector."""

    def __init__(self, inner: Engine, ranks: Ranks, preparation: Preparation) -> None:
        self.method, self._inner, self._ranks, self._preparation = inner.method, inner, ranks, preparation

    def collect(self, order: RoundOrder) -> Collected:
        """Train this rank's share of the assignments, then add up the answers of all ranks."""
        assignments = order.assignments
        shares = share_out([self._expected_work(assignment) for assignment in assignments], self._ranks.size)
        own = [assignments[position] for position in shares[self._ranks.rank]]
        policy = replace(order.policy, cohort_size=len(assignments))
        collected = self._inner.collect(replace(order, assignments=own, policy=policy))
        answers = collected.answers
        if isinstance(answers, Accumulator):
            self._ranks.add_up_(answers.totals)
        elif isinstance(answers, BufferedAnswers):
            answers = answers.shared(self._ranks.gather)
        facts = (collected.num_steps, dict(collected.losses), collected.setup_seconds)
        parts = self._ranks.gather((*facts, list(collected.norms), list(collected.refusals), collected.carried))
        losses: dict[str, tuple[float, int]] = {}
        for _, part, *_ in parts:
            for role, (total, count) in part.items():
                earlier_total, earlier_count = losses.get(role, (0.0, 0))
                losses[role] = (earlier_total + total, earlier_count + count)
        num_steps, setup_seconds = sum(part[0] for part in parts), max(part[2] for part in parts)
        norms, refusals = [one for part in parts for one in part[3]], [one for part in parts for one in part[4]]
        carried = sum((part[5] for part in parts), Carried())
        return Collected(answers, num_steps, losses, setup_seconds, norms, refusals, collected.notes, carried)

    def _expected_work(self, assignment: Assignment) -> float:
        """Return the work to expect of a client's round, in forward MACs."""
        preparation, network = self._preparation, self.method.network
        steps = preparation.count_steps(assignment.client.num_examples)
        expected = self.method.expected_passes(assignment).items()
        return steps * sum(
            share * (preparation.batch_size * network.macs(architecture) + PASS_MACS)
            for architecture, share in expected
        )


def share_out(costs: Sequence[float], num_shares: int) -> list[list[int]]:
    """Deal out positions, the costliest first, each to the share with the least work so far; equal on every rank."""
    shares: list[list[int]] = [[] for _ in range(num_shares)]
    work = [0.0] * num_shares
    for position in sorted(range(len(costs)), key=lambda position: (-costs[position], position)):
        least = work.index(min(work))
        shares[least].append(position)
        work[least] += costs[position]
    return [sorted(share) for share in shares]


def measure_curve(
    ranks: Ranks, evaluator: Validation, method: Method, flat: Tensor, points: Sequence[OperatingPoint]
) -> Curve:
    """Measure a share of the operating points on every rank; return the whole curve on each."""
    shares = share_out([point.macs for point in points], ranks.size)
    own = evaluator.curve(method, flat, [points[position] for position in shares[ranks.rank]])
    parts = ranks.gather(own)
    measured = {point.name: point for part in parts for point in part.points}
    # A rank without a point does not know what those count for whom no point fits.
    whole = next((part for part in parts if part.points), own)
    notes = whole.notes if ranks.size == 1 else {}  # those of a rank are of its points alone
    return replace(whole, notes=notes, points=tuple(measured[point.name] for point in points if point.name in measured))
