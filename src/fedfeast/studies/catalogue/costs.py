"""What training costs, by plans alone: communication and footprint (Sec. 4.3)."""

from dataclasses import dataclass

from fedfeast.evaluation import published
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import plan_compute, plan_traffic
from fedfeast.recipes import Recipe
from fedfeast.studies.arms import BASELINES, LABELS, method_arm
from fedfeast.studies.results import Measure, Outcome, Results, extreme, published_of
from fedfeast.studies.study import Findings, Study
from fedfeast.studies.tables import Cell, Column, Row, Table

TRAFFIC_HEADINGS = {
    "supernet": "whole network (M)",
    "mean": "mean payload (M)",
    "reduction": "in all, times less",
    "client mean": "a client: mean",
    "median": "median",
    "max": "most",
}


def _traffic(recipe: Recipe) -> dict[str, float]:
    built = outline(recipe)
    traffic = plan_traffic(built)
    of_clients = traffic["per_client_reduction"]
    return {
        "supernet": built.method.network.layout.num_parameters / 1e6,
        "mean": traffic["mean_payload_parameters"] / 1e6,
        "reduction": traffic["reduction"],
        "client mean": of_clients["mean"],
        "median": of_clients["median"],
        "max": of_clients["max"],
    }


def _conclude_communication(results: Results) -> Findings:
    traffic = {outcome.seed: _traffic(outcome.recipe) for outcome in results.outcomes}
    papers = published.COMMUNICATION.get(results.data, {})

    def read(key: str) -> Measure:
        return lambda outcome: traffic[outcome.seed][key]

    cells = tuple(results.cell(read(key), "feast", paper=papers.get(key)) for key in TRAFFIC_HEADINGS)
    title = "Parameters sent to a client, and how many times less than the whole network"
    columns = tuple(map(Column, TRAFFIC_HEADINGS.values()))
    note = "Compare Sec. 4.3 of the paper; one way, averaged over all clients."
    return Findings((Table("communication", title, "method", columns, (Row("FEAST", cells),), note=note),))


@dataclass(frozen=True)
class _Footprint:
    """What a recipe asks of its clients; parameters in millions."""

    payload: float  # of the clients that are sent most
    deployed: float
    pmacs: float
    single_pmacs: float  # with the largest variant alone

    @classmethod
    def of(cls, recipe: Recipe) -> "_Footprint":
        built, compute = outline(recipe), plan_compute(recipe)
        return cls(
            max(group.payload for group in built.groups) / 1e6,
            built.method.operating_points()[-1].parameters / 1e6,
            compute["training_pmacs"],
            compute["single_variant_pmacs"],
        )


def _conclude_footprint(results: Results) -> Findings:
    data = results.data
    footprints = {(outcome.arm.name, outcome.seed): _Footprint.of(outcome.recipe) for outcome in results.outcomes}

    def of(outcome: Outcome) -> _Footprint:
        return footprints[outcome.arm.name, outcome.seed]

    ratios = published.COMPUTE_RATIOS
    rows = [
        Row(
            "FEAST",
            (
                results.cell(lambda one: of(one).payload, "feast", paper=published.ENVELOPE_MILLIONS.get(data)),
                results.cell(lambda one: of(one).deployed, "feast", paper=published.DEPLOYED_MILLIONS.get(data)),
                results.cell(lambda one: of(one).pmacs, "feast", paper=published.TRAINING_PMACS.get(data)),
                Cell(),
            ),
        ),
        Row(
            "FEAST, largest variant alone",
            (
                Cell(),
                Cell(),
                results.cell(lambda one: of(one).single_pmacs, "feast"),
                results.cell(
                    lambda one: of(one).pmacs / of(one).single_pmacs,
                    "feast",
                    paper=published_of(ratios, data, "single"),
                ),
            ),
        ),
    ]
    for baseline in BASELINES:
        paper = published_of(ratios, data, baseline)
        cells = (
            results.cell(lambda one: of(one).payload, baseline),
            results.cell(lambda one: of(one).deployed, baseline),
            results.cell(lambda one: of(one).pmacs, baseline),
            results.cell(lambda feast, one: of(feast).pmacs / of(one).pmacs, "feast", baseline, paper=paper),
        )
        rows.append(Row(LABELS[baseline], cells))
    least, greatest = published.BASELINE_PAYLOAD_MILLIONS.get(data, (None, None))
    for label, choose, paper in (("the baselines' least", min, least), ("the baselines' greatest", max, greatest)):
        payload = results.cell(extreme(choose, lambda one: of(one).payload), *BASELINES, paper=paper)
        rows.append(Row(label, (payload, Cell(), Cell(), Cell())))
    headings = ("largest payload (M)", "deployed model (M)", "training PMACs", "FEAST's compute over it")
    title, note = (
        "Training and deployment",
        "Compare Sec. 4.3 of the paper; PMACs are forward and backward, of all rounds.",
    )
    return Findings((Table("footprint", title, "method", tuple(map(Column, headings)), tuple(rows), note=note),))


COMMUNICATION = Study(
    "communication",
    "Communication (Sec. 4.3)",
    "How much less does routing send than the whole network?",
    lambda resolve: (method_arm("feast"),),
    _conclude_communication,
    trains=False,
)
FOOTPRINT = Study(
    "footprint",
    "Computation and footprint (Sec. 4.3)",
    "What does training FEAST cost, and what is deployed in the end?",
    lambda resolve: tuple(map(method_arm, ("feast", *BASELINES))),
    _conclude_footprint,
    trains=False,
)
