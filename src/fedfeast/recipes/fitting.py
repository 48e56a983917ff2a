"""What a recipe for any images takes from its data: the server's examples, clients, budgets and targets."""

from collections.abc import Set
from typing import Any

from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.recipes.sections import DataSection, NetworkSection, PopulationSection
from fedfeast.recipes.suitability import BRANCH_SETTINGS

# Packaged recipes whose fields below follow the data where nobody sets them (docs/decisions/036).
FITTED_RECIPES = ("small-images",)

# Choice: shares of the training examples that the server keeps, and the most of them that it needs.
VALIDATION_SHARE, MOST_VALIDATION = 0.15, 1000
CALIBRATION_SHARE, MOST_CALIBRATION = 0.10, 500
EXAMPLES_A_CLIENT = 24  # on average: a batch and a half
FEWEST_CLIENTS, MOST_CLIENTS = 4, 40
CLIENTS_A_ROUND = 10  # where there are as many


def fit_to_data(
    data: DataSection, network: NetworkSection, population: PopulationSection, given: Set[str]
) -> dict[str, Any]:
    """Return the settings that suit the data, by dotted name, without those that are given, one by one or a section."""
    facts = data.facts
    fitted: dict[str, Any] = {
        "data.validation_examples": _share(facts.train_examples, VALIDATION_SHARE, facts.classes, MOST_VALIDATION),
        "data.calibration_examples": _share(facts.train_examples, CALIBRATION_SHARE, facts.classes, MOST_CALIBRATION),
    }
    pool = facts.train_examples - sum(fitted.values())
    wished = min(max(pool // EXAMPLES_A_CLIENT, FEWEST_CLIENTS), MOST_CLIENTS)
    fitted["population.num_clients"] = max(min(wished, pool), 1)
    is_given = not given.isdisjoint({"population", "population.num_clients"})
    num_clients = population.num_clients if is_given else fitted["population.num_clients"]
    fitted["training.clients_per_round"] = min(CLIENTS_A_ROUND, num_clients)
    if network.builder is None and facts.kind == "images":
        fitted |= _budgets(data, network)
    sections = {name.partition(".")[0] for name in fitted} & given
    return {key: value for key, value in fitted.items() if key not in given and key.partition(".")[0] not in sections}


def space_of(data: DataSection, network: NetworkSection) -> SearchSpace:
    """Return the elastic ResNet's space for the data's images."""
    others = {"builder", "choices", "options", "weights", *BRANCH_SETTINGS}
    facts, choices = data.facts, network.model_dump(exclude=others)
    return SearchSpace(**choices, image_size=facts.side, image_channels=facts.channels, classes=facts.classes)


def _budgets(data: DataSection, network: NetworkSection) -> dict[str, float]:
    """Return budgets and targets over all sizes of the space: what they cost follows the images' size."""
    elastic = ElasticResNet(space_of(data, network))
    least, greatest = (float(elastic.macs(one)) for one in (elastic.smallest, elastic.largest))
    return {
        "population.least_macs": least,
        "population.greatest_macs": 2 * greatest,  # so that somebody affords the largest of them
        "population.cap_macs": greatest,
        "variants.least_target_macs": least,
        "variants.greatest_target_macs": greatest,
    }


def _share(examples: int, share: float, least: int, most: int) -> int:
    """Return so much of the examples, two or one a class at least, where there are so many."""
    return max(2, min(max(round(share * examples), least), most))
