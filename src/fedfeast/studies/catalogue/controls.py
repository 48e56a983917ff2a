"""What a reviewer asks: one choice of the protocol, of FEAST or of a baseline changed at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedfeast.evaluation import published
from fedfeast.planning.plan import plan_compute
from fedfeast.recipes.building import build_method, build_population, build_resnet
from fedfeast.studies.arms import BASELINES, LABELS, Arm, method_arm
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import IMAGES, LETTER, Findings, Resolve, Study
from fedfeast.studies.tables import Column, Row, Table

EPOCHS = (1, 2, 5)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of distillation in a student's loss; the paper has one half
TEMPERATURES = (2.0, 4.0)  # beside the paper's 1
RANDOM_CACHES = {"cifar100": "cifar100-56-random", "digits": "digits-8-random"}
HALVED_WIDTHS = (1.0, 0.5, 0.25, 0.125, 0.0625)
PRESET_MACS = 555e6  # of the network whose nominal cost the authors' presets have
NEARBY = 0.05  # relative

OUR_OWN = tuple(dataset for dataset in IMAGES if dataset != LETTER)  # where defaults and presets are two things


def _weighting_arms(resolve: Resolve) -> list[Arm]:
    arms = []
    for method in ("feast", *BASELINES):
        count = {"aggregation.weigh": "alike"} if method == "feast" else {"method.weighting": "count"}
        arms += [method_arm(method), method_arm(method, count, "one vote a client")]
    return arms


def _epoch_arms(resolve: Resolve) -> list[Arm]:
    """Give more local epochs for as many rounds, and to FEAST also for as many epochs in all."""
    rounds = resolve({}).training.rounds
    arms = [
        method_arm(method, {"training.local_epochs": epochs}, f"{epochs} local epoch{'s' if epochs > 1 else ''}")
        for method in ("feast", "fiarse")
        for epochs in EPOCHS
    ]
    for epochs in EPOCHS[1:]:
        settings = {"training.local_epochs": epochs, "training.rounds": max(1, round(rounds / epochs))}
        arms.append(method_arm("feast", settings, f"{epochs} local epochs, equal compute"))
    return arms


def _distillation_arms(resolve: Resolve) -> list[Arm]:
    return [
        *(method_arm("feast", {"method.distillation_share": share}, f"share {share:g}") for share in SHARES),
        *(method_arm("feast", {"method.temperature": heat}, f"temperature {heat:g}") for heat in TEMPERATURES),
    ]


def _cache_arms(resolve: Resolve) -> list[Arm]:
    cache = RANDOM_CACHES[resolve({}).data.name]
    return [method_arm("feast"), method_arm("feast", {"variants.cache": cache}, "random cache")]


def _preset_arms(resolve: Resolve) -> list[Arm]:
    """Set what FEAST's authors ran beside our defaults; a nominal cost holds for their network alone."""
    resnet = build_resnet(resolve({}))
    is_theirs = abs(resnet.macs(resnet.whole) - PRESET_MACS) <= NEARBY * PRESET_MACS
    arms = []
    for method in BASELINES:
        settings: dict[str, Any] = {"method.preset": "authors"}
        if not is_theirs and method != "scalefl":
            settings["method.nominal_macs"] = None
        arms += [method_arm(method), method_arm(method, settings, "as the authors ran it")]
    return [*arms, method_arm("feast")]


def _backbone_arms(resolve: Resolve) -> list[Arm]:
    """Train every rule on the network of the others."""
    resnet = build_resnet(resolve({}))
    whole = {"method.backbone": "resnet", "method.max_macs": float(resnet.macs(resnet.whole))}
    elastic = {"method.backbone": "elastic"}
    widths = {"method.widths": HALVED_WIDTHS}
    arms = [
        method_arm("feast"),
        method_arm("feast", {"method.backbone": "resnet"}, "on the ResNet"),
        method_arm("feast", {"method.backbone": "resnet", **widths}, "on the ResNet, HeteroFL's widths"),
        method_arm("fedavg", whole, "on the ResNet"),
    ]
    for method, further in (("heterofl", {}), ("fedrolex", {}), ("fjord", widths)):
        arms += [method_arm(method), method_arm(method, {**elastic, **further}, "on the supernet's network")]
    return [_fitting(arm, resolve) for arm in arms]


def _fitting(arm: Arm, resolve: Resolve) -> Arm:
    """Return the arm without the clients that afford none of its networks, where there are such."""
    without = {**arm.settings, "population.below_smallest": "exclude"}
    recipe = resolve(without)
    method, _ = build_method(recipe)
    is_too_large = build_population(recipe).budgets_macs.min() < method.least_macs
    lifts = resolve(arm.settings).population.below_smallest == "lift"
    return Arm(arm.name, arm.label, without) if is_too_large and not lifts else arm


def _pmacs(outcome: Outcome) -> float:
    return plan_compute(outcome.recipe)["training_pmacs"]


def _conclude(name: str, title: str, note: str) -> Callable[[Results], Findings]:
    """Return what reads every arm at the anchors and over the population, beside the training that it took."""

    def conclude(results: Results) -> Findings:
        papers, first = _papers_of(results), next(iter(results.arms))
        pmacs = {(one.arm.name, one.seed): _pmacs(one) for one in results.outcomes}
        anchors, scores = [], []
        for arm in results.arms.values():
            anchors.append(Row(arm.label, results.at_anchors(arm.name, papers.get(arm.name))))
            cells = (
                results.cell(lambda outcome: outcome.score, arm.name),
                results.cell(lambda outcome: outcome.best_score, arm.name),
                results.cell(
                    lambda one: pmacs[one.arm.name, one.seed] / pmacs[first, one.seed],
                    arm.name,
                ),
            )
            scores.append(Row(arm.label, cells))
        columns = (
            Column(f"population score{results.percent}"),
            Column(f"by the best affordable{results.percent}"),
            Column("training compute"),
        )
        lines = [results.line(arm, colour, published=papers.get(arm)) for colour, arm in enumerate(results.arms)]
        of_compute = f"Training compute is times that of {results.arms[first].label}."
        return Findings(
            (
                Table(name, title, "setting", results.anchor_columns(), tuple(anchors), results.measured_in, note),
                Table(f"{name}-scores", f"{title}: scores", "setting", columns, tuple(scores), note=of_compute),
            ),
            (results.plot(name, title, note, lines),),
        )

    return conclude


def _papers_of(results: Results) -> Mapping[str, Sequence[float]]:
    """Return what the paper has for arms that are its FEAST."""
    full = published.TRAINING_RULES.get(results.data, {}).get("full")
    same = ("feast", "feast, 1 local epoch", "feast, share 0.5")
    return {} if full is None else {name: full for name in same}


WEIGHTING = Study(
    "weighting",
    "Answers weighed by examples or alike",
    "Does it matter whether a client's answer weighs by its examples or counts as one?",
    _weighting_arms,
    _conclude(
        "weighting",
        "Weights of answers",
        "By the number of examples unless said; the papers of HeteroFL, ScaleFL and FIARSE count every client alike.",
    ),
    ("aggregation.weigh",),
)
LOCAL_EPOCHS = Study(
    "local-epochs",
    "Local epochs",
    "What do more local epochs a round do, for as many rounds and for as much compute?",
    _epoch_arms,
    _conclude(
        "local-epochs",
        "Local epochs",
        "The paper trains one local epoch a round. Equal compute: as many fewer rounds, each with its own cosine.",
    ),
    ("training.local_epochs", "training.rounds"),
)
DISTILLATION = Study(
    "distillation",
    "Distillation: share and temperature",
    "How much do the share of distillation in a student's loss and its temperature matter?",
    _distillation_arms,
    _conclude(
        "distillation",
        "Share and temperature of distillation",
        "The paper has a share of one half and temperature 1; shares are varied at temperature 1, temperatures at one "
        "half.",
    ),
)
CACHE_SEARCH = Study(
    "cache-search",
    "A searched or a random cache",
    "Does FEAST need networks that were searched for, or would random ones of the same costs do?",
    _cache_arms,
    _conclude(
        "cache-search",
        "Searched and random networks",
        "The random cache has as many networks; each costs at most as much as the searched one of its row, and at "
        "least 95 % of it.",
    ),
    ("variants.cache",),
    datasets=tuple(RANDOM_CACHES),
)
PRESETS = Study(
    "baseline-presets",
    "Baselines: our defaults and the authors' settings",
    f"What do {', '.join(LABELS[one] for one in BASELINES)} come to as FEAST's authors ran them?",
    _preset_arms,
    _conclude(
        "baseline-presets",
        "Baselines in two settings",
        "The settings of both are in docs/baselines.md. Curves are over the MACs that budgets are compared with, which "
        "for the authors' FIARSE and HeteroFL are not true costs.",
    ),
    datasets=OUR_OWN,
)
BACKBONES = Study(
    "backbones",
    "One method on the other's network",
    "How much of the difference is the training rule, and how much the network?",
    _backbone_arms,
    _conclude(
        "backbones",
        "Training rules on both networks",
        "On the supernet's network a baseline slices the largest cached variant by width. FedAvg trains the whole "
        "ResNet on the clients that afford it; clients without an affordable network count as unserved.",
    ),
    ("population.below_smallest",),
    datasets=OUR_OWN,
)
CONTROLS = (WEIGHTING, LOCAL_EPOCHS, DISTILLATION, CACHE_SEARCH, PRESETS, BACKBONES)
