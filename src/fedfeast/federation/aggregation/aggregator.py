"""What stands between clients' replies and the global vector: the checks, then the rule of aggregation."""

import logging

import torch
from torch import Tensor

from fedfeast.federation.aggregation.accumulator import Accumulator, Answers
from fedfeast.federation.aggregation.central_privacy import CentralRound, PrivateSums
from fedfeast.federation.aggregation.refusals import NormHistory, Refusal, find_count_fault, find_norm_fault, norm_of
from fedfeast.federation.aggregation.robust import Aggregation, BufferedAnswers, clip_factors
from fedfeast.federation.records import Assignment


class Aggregator:
    """Takes the replies of one round, one by one, and forgets them; what is refused touches nothing.

    Unchecked, for a plain mean in a simulation, a reply is added up and nothing else is done.
    """

    def __init__(
        self,
        flat: Tensor,
        options: Aggregation,
        history: NormHistory,
        expected: int,
        checked: bool = True,
        central: CentralRound | None = None,
    ) -> None:
        self._checked, self._central = checked, central
        self._clip_bound = history.times(options.clip_multiple) if options.rule == "clipped-mean" else None
        self._refuse_bound = history.times(options.refuse_multiple)
        # Choice: the clipped mean streams once an earlier round gives a bound; the first round waits for its own.
        streams = options.rule == "mean" or self._clip_bound is not None
        self.sums = Accumulator(flat.numel(), flat.device) if streams else None
        if central is not None:
            self.sums = PrivateSums(flat, central)
        self._buffered: BufferedAnswers | None = None
        if not streams:
            bound = history.times(options.clip_multiple)
            self._buffered = BufferedAnswers(flat.numel(), expected, flat.dtype, options, bound)
        self.norms: list[float] = []  # of accepted changes
        self.refusals: list[Refusal] = []

    @property
    def answers(self) -> Answers:
        """What was accepted."""
        answers = self.sums or self._buffered
        assert answers is not None
        return answers

    def take(
        self,
        assignment: Assignment,
        sent: Tensor,
        returned: Tensor,
        counted: Tensor | None = None,
        num_examples: int | None = None,
        farthest: float | None = None,
    ) -> Refusal | None:
        """Check a reply, given as vectors of the client's layout, and add it; return why it was refused.

        ``num_examples`` is what the client says it trained on, ``farthest`` how far training can lead at all.
        """
        client, slices = assignment.client, assignment.slice_map
        if not self._checked and self.sums is not None:
            self.sums.add(slices, returned, assignment.weight, counted)
            return None
        if num_examples is not None:
            fault = find_count_fault(num_examples, client.num_examples)
            if fault is not None:
                return self.refuse(assignment, fault)
        change = returned - sent
        own = slices.pack(change)
        norm = norm_of(own)
        bounds = [bound for bound in (self._refuse_bound, farthest) if bound is not None]
        fault = find_norm_fault(own, norm, min(bounds, default=None))
        if fault is not None:
            return self.refuse(assignment, fault)
        if self._central is not None and self.sums is not None:
            self.sums.add(slices, self._central.privacy.clipped(change, norm), assignment.weight, counted)
            return None
        self.norms.append(norm)
        if self._buffered is not None:
            self._buffered.add(slices, change, norm, assignment.weight, counted)
        elif self.sums is not None:
            if self._clip_bound is not None and norm > self._clip_bound:
                returned = torch.lerp(sent, returned, float(clip_factors([norm], self._clip_bound)))
            self.sums.add(slices, returned, assignment.weight, counted)
        return None

    def refuse(self, assignment: Assignment, reason: str) -> Refusal:
        """Leave a client's reply out of the round, and say so."""
        refusal = Refusal(assignment.client.name, reason)
        self.refusals.append(refusal)
        logging.getLogger("fedfeast").warning("%s", refusal)
        return refusal

    def close(self) -> None:
        """Give disk space back where the round is given up; merging does it by itself."""
        if self._buffered is not None:
            self._buffered.close()
