from collections.abc import Callable, Mapping, Sequence

import pytest

from fedfeast.data.tasks import ACCURACY
from fedfeast.studies.choosing.advice import Advice, advise, format_compute
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.pairs import Pair

MakeStanding = Callable[..., Standing]
Ask = Callable[..., Advice]
WIDE = (0.03, -0.03, 0.0)  # by which seeds vary


@pytest.fixture
def ask(beside: Callable[[Sequence[Standing]], Callable[[str], Mapping[str, Pair]]]) -> Ask:
    return lambda *standings: advise(standings, ACCURACY, beside(standings))


def test_a_clear_lead_decides_whatever_it_costs(standing: MakeStanding, ask: Ask) -> None:
    best = standing("feast", 0.9, 0.9, traffic=9e6)
    advice = ask(standing("fedavg", 0.85, 0.85, by_seed=[0.001, 0.0, -0.001]), best)
    assert advice.recommended is best
    assert advice.tied == (best,)
    first, cost, other = advice.sentences
    assert first.startswith("Take FEAST (method.name=feast): its population score, 90.00 %, is clearly the best (Fed")
    assert "FedAvg, the next, is behind by 5.00 points, p < 0.001)" in first
    assert cost.startswith("It took 7 rounds, 9 MB of traffic and 1 TMACs; its worst-served tenth of clients has 90.00")
    assert "What it is for: " in cost
    assert other == (
        "FedAvg is the better choice where bytes are dear (1 MB): its score is 85.00 %, worse by 5.00 points."
    )


def test_traffic_decides_among_ties_and_compute_where_that_is_alike(standing: MakeStanding, ask: Ask) -> None:
    best = standing("feast", 0.9, 0.9, WIDE, traffic=2e6)
    light = standing("heterofl", 0.895, 0.895, traffic=1e6)
    quick = standing("fjord", 0.893, 0.893, traffic=1.03e6, pmacs=1e-4)
    by_traffic = ask(best, light)
    assert by_traffic.recommended is light
    assert by_traffic.best is best
    assert "alike within chance (HeteroFL 89.50 %; FEAST 90.00 %) it sends least." in by_traffic.sentences[0]
    assert "FEAST is ahead by 0.50 points, which may be chance (p = 0." in by_traffic.sentences[0]
    by_compute = ask(best, standing("heterofl", 0.895, 0.895, WIDE[::-1]), quick)
    assert by_compute.recommended is quick
    assert "it sends hardly more than any of them and computes least" in by_compute.sentences[0]


def test_the_worst_served_clients_come_before_costs(standing: MakeStanding, ask: Ask) -> None:
    fair, unfair = standing("feast", 0.8, 0.8, traffic=5e6), standing("heterofl", 0.6, 0.96, WIDE)
    advice = ask(fair, unfair)
    assert set(advice.tied) == {fair, unfair}
    assert advice.recommended is fair
    assert "its worst-served tenth of clients is clearly better off" in advice.sentences[0]
    fairer = ask(standing("feast", 0.77, 0.99), standing("nested", 0.82, 0.82, by_seed=[0.001, 0.0, -0.001]))
    assert fairer.recommended.name == "feast"
    assert "where the worst-served clients count most (82.00 %)" in fairer.sentences[2]


def test_a_saving_that_costs_too_much_is_not_recommended(standing: MakeStanding, ask: Ask) -> None:
    advice = ask(standing("feast", 0.9, 0.9, traffic=9e6), standing("splitmix", 0.3, 0.3, WIDE))
    assert len(advice.sentences) == 2


def test_the_best_score_is_taken_where_nothing_can_be_judged(standing: MakeStanding, ask: Ask) -> None:
    advice = ask(standing("fedavg", 0.85, 0.85, [0.0]), standing("feast", 0.86, 0.86, [0.0], traffic=9e6))
    assert advice.recommended.name == "feast"
    assert "is the best by 1.00 points; whether that is chance one seed cannot tell here." in advice.sentences[0]


def test_a_lead_that_many_comparisons_may_bring_about_is_not_called_clear(standing: MakeStanding, ask: Ask) -> None:
    seeds = [0.0053, 0.0, -0.0053]
    others = [standing(name, 0.885, 0.885, seeds) for name in ("nested", "fedsup")]
    first, *_ = ask(standing("feast", 0.9, 0.9), *others).sentences
    assert "clearly" not in first
    assert "is the best beyond its margin (" in first
    assert "is behind by 1.50 points; among so many comparisons that may still be luck, p = 0.0" in first


def test_the_only_candidate_is_said_to_be_so(standing: MakeStanding, ask: Ask) -> None:
    first, cost = ask(standing("scalefl", 0.9, 0.9, prices=(1_300_000, 1_400_000))).sentences
    assert "is that of the only candidate" in first
    assert "30% of the clients afford none of its networks." in cost


def test_compute_for_people() -> None:
    assert [format_compute(one) for one in (31.01, 2.15e-3, 4e-6)] == ["31 PMACs", "2.15 TMACs", "4 GMACs"]
