"""What every method must keep, by the rules of runs/contract. A new method is tested by adding one line to CASES."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.methods import METHODS
from fedfeast.recipes import load_recipe
from fedfeast.runs.contract.checking import RULES
from fedfeast.runs.contract.trial import Trial

CASES: dict[str, Mapping[str, Any]] = {
    "feast": {"method.name": "feast"},
    "feast, global min": {"method.name": "feast", "method.rule": "global-min"},
    "feast, local max": {"method.name": "feast", "method.rule": "local-max"},
    "feast, min and max": {"method.name": "feast", "method.rule": "min-max"},
    "feast, min and max, distilled": {"method.name": "feast", "method.rule": "min-max-distilled"},
    "feast, cheap ones drawn": {"method.name": "feast", "method.sampling": "inverse-macs"},
    "feast, the smallest now and then": {"method.name": "feast", "method.smallest_share": 0.4},
    "feast, students on a part": {"method.name": "feast", "method.student_batch": 0.3},
    "feast, a progressive start": {"method.name": "feast", "method.progressive": 0.5},
    "feast, on the ResNet": {"method.name": "feast", "method.backbone": "resnet"},
    "heterofl": {"method.name": "heterofl"},
    "heterofl, by count": {"method.name": "heterofl", "method.weighting": "count"},
    "heterofl, as FEAST's authors": {
        "method.name": "heterofl",
        "method.preset": "authors",
        "method.nominal_macs": 800e3,
    },
    "heterofl, on the supernet": {
        "method.name": "heterofl",
        "method.backbone": "elastic",
        "population.below_smallest": "exclude",
        "method.widths": [1.0, 0.5],
    },
    "heterofl, labels masked": {"method.name": "heterofl", "method.label_masked_loss": True},
    "heterofl, label rows": {"method.name": "heterofl", "method.label_row_merging": True},
    "scalefl": {"method.name": "scalefl"},
    "scalefl, distilled at once": {"method.name": "scalefl", "method.warm_up": -1.0},
    "scalefl, as FEAST's authors": {
        "method.name": "scalefl",
        "method.preset": "authors",
        "method.levels": [[3, 0.4], [4, 0.5], [5, 0.6], [6, 1.0]],
        "resnet.blocks": [2, 2, 1, 1],
    },
    "fiarse": {"method.name": "fiarse"},
    "fiarse, layerwise": {"method.name": "fiarse", "method.layerwise": True},
    "fiarse, as released": {"method.name": "fiarse", "method.gradient": "released", "method.membership": "delta"},
    "fiarse, as FEAST's authors": {
        "method.name": "fiarse",
        "method.preset": "authors",
        "method.nominal_macs": 1e6,
        "method.initialisation": "torch",  # with the authors' own, small clients keep nothing of the head at first
    },
    "superfednas": {"method.name": "superfednas"},
    "superfednas, as FEAST's authors": {"method.name": "superfednas", "method.preset": "authors"},
    "superfednas, unconstrained": {"method.name": "superfednas", "method.constrained": False},
    "deepfednas": {"method.name": "deepfednas"},
    "deepfednas, as FEAST's authors": {"method.name": "deepfednas", "method.preset": "authors"},
    "deepfednas, unconstrained": {"method.name": "deepfednas", "method.constrained": False},
    "fjord": {"method.name": "fjord"},
    "fjord, distilled": {"method.name": "fjord", "method.distillation": True},
    "fjord, on the supernet": {
        "method.name": "fjord",
        "method.backbone": "elastic",
        "population.below_smallest": "exclude",
        "method.widths": [0.5, 1.0],
        "method.distillation": True,
    },
    "fedrolex": {"method.name": "fedrolex"},
    "fedrolex, on the supernet": {
        "method.name": "fedrolex",
        "method.backbone": "elastic",
        "population.below_smallest": "exclude",
        "method.widths": [1.0, 0.5],
    },
    "nested": {"method.name": "nested"},
    "nested, distilled": {"method.name": "nested", "method.distillation": True},
    "fedsup": {"method.name": "fedsup"},
    "fedsup, as released": {"method.name": "fedsup", "method.preset": "released", "method.random_networks": 2},
    "efedsup": {"method.name": "efedsup"},
    "depthfl": {"method.name": "depthfl"},
    "depthfl, as released": {
        "method.name": "depthfl",
        "method.preset": "released",
        "method.ramp_up": 0.0,
        "population.below_smallest": "exclude",
    },
    "nefl": {"method.name": "nefl"},
    "nefl, as released": {"method.name": "nefl", "method.preset": "released"},
    "splitmix": {"method.name": "splitmix"},
    "fedavg, smallest": {"method.name": "fedavg"},
    "fedavg, for some": {"method.name": "fedavg", "method.max_macs": 4e5},
    "fedavg, on the ResNet": {"method.name": "fedavg", "method.backbone": "resnet", "method.max_macs": 5e5},
}
every_method = pytest.mark.parametrize("case", CASES)


@cache
def trial(case: str) -> Trial:
    return Trial(load_recipe("digits", {**TINY, **CASES[case]}))


def test_every_registered_method_has_a_case() -> None:
    assert {case["method.name"] for case in CASES.values()} == set(METHODS)


@every_method
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_kept(case: str, rule: str) -> None:
    assert list(RULES[rule].violations(trial(case))) == []


@every_method
def test_plans_need_weights_where_they_say_so(case: str) -> None:
    tried = trial(case)
    if tried.method.plans_by_weights:
        with pytest.raises((RuntimeError, IndexError)):
            tried.assign(tried.federation.participants, flat=torch.empty(0))
