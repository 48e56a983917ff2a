"""A method of one's own is tried by the same rules, and every violation is one sentence."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.methods import FedAvg
from fedfeast.recipes import load_recipe
from fedfeast.runs.contract.checking import RULES, check_method, first_violation
from fedfeast.runs.contract.trial import Trial

PAGE = Path(__file__).parents[3] / "docs" / "add-a-method.md"
HEAD = """
from dataclasses import dataclass, replace
import numpy as np
import torch
from fedfeast.federation import Pass, ServerOptimiser
from fedfeast.methods import FedAvg

CALLS = []

class Drifting(ServerOptimiser):
    def server_step(self, state, flat, merged):
        return merged.flat + 1, state

@dataclass(frozen=True)
class Mine(FedAvg):
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Return what writes a method into a file, and its name for a recipe."""

    def write(code: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text(code)
        return f"{file}:Mine"

    return write


def violation(named: str, rule: str) -> str | None:
    return first_violation(RULES[rule], Trial(load_recipe("digits", {**TINY, "method.name": named})))


def test_the_documented_method_keeps_every_rule(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "narrow_or_whole.py").write_text(code)
    tried: list[str] = []
    named = f"{tmp_path / 'narrow_or_whole.py'}:NarrowOrWhole"
    report = fedfeast.check_method(named, settings=TINY, on_rule=lambda rule: tried.append(rule.name))
    assert (report.passed, report.violated, report.kept) == (True, {}, tuple(RULES))
    assert tried == list(RULES)
    assert all(rule["violation"] is None for rule in report.to_json()["rules"])


BROKEN: dict[str, tuple[str, str]] = {
    "budgets": (
        """
        def served_macs(self, assignment):
            return 10**12
        """,
        r"client \d+ with a budget of \d+ MACs is made to train a network of 1000000000000",
    ),
    "blind plans": (
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return [replace(one, weight=float(flat.numel())) for one in assigned], state
        """,
        r"something else without the weights, although plans_by_weights = False",
    ),
    "mean passes": (
        """
        def expected_passes(self, assignment):
            return {assignment.architectures[-1]: 2.0}
        """,
        r"expected_passes\(\) says 2.0 passes a step .* gives 1.00 on average",
    ),
    "participants": (
        """
        def trains(self, budget_macs):
            return True
        """,
        r"trains\(\d+\) is True, although the smallest operating point costs",
    ),
    "sent": (
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return [replace(one, architectures=(self.network.largest,)) for one in assigned], state
        """,
        r"may train .* whose .* has the shape .* and is sent",
    ),
    "rounds alike": (
        """
        def rounds_alike(self):
            return {0: 0.5}
        """,
        "add up to 0.5 and not to 1",
    ),
    "cost": (
        """
        def operating_points(self):
            return tuple(replace(one, macs=one.macs + 1) for one in super().operating_points())
        """,
        r"declares \d+ MACs, its deployed network \d+ and does \d+",
    ),
    "memory": (
        """
        def initial_state(self):
            return {"count": 3}
        """,
        "in ",
    ),
    "seed": (
        """
        def passes(self, assignment, step, generator):
            part = float(np.random.default_rng().uniform(0.2, 1.0))
            return [Pass(assignment.architectures[-1], "supervised", part)]

        @property
        def takes_parts(self):
            return True
        """,
        "two rounds with the same seed end in different weights",
    ),
    "not sent": (
        """
        def merge(self, flat, answers):
            return super().merge(flat, answers) + 1
        """,
        r"a round changes \d+ weights that no client was sent",
    ),
    "server step": (
        """
        def server_optimiser(self, common):
            return Drifting(common.optimiser, lookahead=common.lookahead)
        """,
        "moves positions that nobody answered",
    ),
    "single answer": (
        """
        def merge(self, flat, answers):
            return (flat + super().merge(flat, answers)) / 2
        """,
        "does not end in what that client answers",
    ),
    "losses": (
        """
        def loss(self, role, outputs, batch, carried, constants):
            loss, left = super().loss(role, outputs, batch, carried, constants)
            return loss * float(batch.inputs.double().mean()), left
        """,
        r"loss\(\) of the role 'supervised' looks at a tensor's values",
    ),
    "captured": (
        """
        def loss(self, role, outputs, batch, carried, constants):
            loss, left = super().loss(role, outputs, batch, carried, constants)
            CALLS.append(0)
            return loss * len(CALLS), left
        """,
        "captured passes and plain ones differ",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_violation_is_one_sentence(rule: str, written: Callable[[str], str]) -> None:
    body, sentence = BROKEN[rule]
    named = written(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    fedfeast.trust(named)
    found = violation(named, rule)
    assert found is not None
    assert re.search(sentence, found), found
    assert "\n" not in found


def test_every_rule_can_be_violated() -> None:
    assert {*BROKEN, "frozen"} == set(RULES)


def test_a_class_that_is_no_frozen_record(written: Callable[[str], str]) -> None:
    named = written(HEAD.replace("@dataclass(frozen=True)\n", "") + "    pass\n")
    fedfeast.trust(named)
    assert violation(named, "frozen") is None, "it inherits being frozen"
    named = written(HEAD + "    sizes: tuple = ([1],)\n")
    fedfeast.trust(named)
    assert "has no hash" in str(violation(named, "frozen"))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise ValueError('not now')", "mine.py, line 1, in <module>: ValueError: not now."),
        (
            HEAD + "    def weights(self, weights, constants):\n        return weights\n",
            "declare changes_weights = True",
        ),
        (
            "from dataclasses import dataclass\nfrom fedfeast.federation import Method\n"
            "@dataclass(frozen=True)\nclass Mine(Method):\n    @classmethod\n"
            "    def build(cls, parts, **options):\n        return cls()\n",
            "TypeError: Can't instantiate abstract class Mine",
        ),
    ],
)
def test_what_cannot_be_built_is_told_and_nothing_else_is_tried(
    code: str, sentence: str, written: Callable[[str], str]
) -> None:
    report = check_method(written(code), settings=TINY)
    assert (report.passed, report.kept, list(report.violated)) == (False, (), ["built"])
    assert sentence in report.violated["built"]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("feest", {}, "check-method 'feest' names no method: write file.py:Class"),
        ("gone.py:Mine", {}, "check-method names the file gone.py, which is no Python file here"),
        ("feast", {"method.name": "fedavg"}, "method.name is set, and the method to check is feast"),
        (int, {}, "which is no class derived from Method"),
    ],
)
def test_bad_input_is_refused(method: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_method(method, settings=settings)


def test_a_class_of_the_users_own_program_is_taken_as_it_is() -> None:
    report = check_method(FedAvg, settings=TINY)
    assert report.passed, report.violated
    assert report.method.endswith("fedavg.py:FedAvg")
