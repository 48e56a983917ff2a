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
from fedfeast.federation import Method, Pass, ServerOptimiser
from fedfeast.methods import FedAvg
from fedfeast.routing import LeadingSlices

CALLS = []

class Drifting(ServerOptimiser):
    def server_step(self, state, flat, merged):
        return merged.flat + 1, state

@dataclass(frozen=True)
class Mine(FedAvg):
"""
PLANS_THE_LARGEST = """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            larger = self.network.largest
            slices = LeadingSlices.of(self.network.layout, self.network.shapes(larger))
            return [replace(one, slice_map=slices, architectures=(larger,)) for one in assigned], state
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
        "the memory has count = 3, which is no tensor",
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
    "one each": (
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return assigned[::2], state
        """,
        r"plan_round\(\) gives client \d+ 0 assignments in round 0: give one to each client",
    ),
    "constants": (
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return [replace(one, constants={"c": torch.ones(1 + one.client.index % 2)}) for one in assigned], state
        """,
        r"client \d+ has the constants c \(2,\) torch.float32 in round 0, and client \d+ c \(1,\)",
    ),
    "same budget": (
        """
        def plan_round(self, state, flat, cohort, *rest):
            assigned, state = super().plan_round(state, flat, cohort, *rest)
            larger = self.network.largest
            slices = LeadingSlices.of(self.network.layout, self.network.shapes(larger))
            odd = [one.client.index % 2 for one in assigned]
            other = [replace(one, slice_map=slices, architectures=(larger,)) for one in assigned]
            return [other[place] if odd[place] else one for place, one in enumerate(assigned)], state
        """,
        r"both with a budget of \d+ MACs, are given different networks in round 0: .* declare plans_differ = True",
    ),
    "listed": (
        PLANS_THE_LARGEST,
        r"client \d+ trains Architecture.*, which trained_architectures\(\) does not list and which is larger",
    ),
    "untouched": (
        """
        def deploy(self, flat, point):
            deployed = super().deploy(flat, point)
            flat.mul_(0.5)
            return deployed
        """,
        r"deploy\(\) of .* changes the global vector that it is given",
    ),
    "deployed": (
        """
        def deploy(self, flat, point):
            return super().deploy(torch.zeros_like(flat), point)
        """,
        r"deploy\(\) of .* says that its tensors are leading slices of the global vector's, and holds other values",
    ),
    "same loss": (
        """
        def plan_round(self, state, flat, cohort, round_index, generator):
            object.__setattr__(self, "_factor", 0.1 if round_index else 1.0)
            return super().plan_round(state, flat, cohort, round_index, generator)

        def loss(self, role, outputs, batch, carried, constants):
            loss, left = super().loss(role, outputs, batch, carried, constants)
            return loss * self._factor, left
        """,
        r"loss\(\) of the role 'supervised' gives .* in round 0 and .* in round 1 for the same outputs",
    ),
}
# Further ways to break a rule.
ALSO_BROKEN: dict[str, tuple[str, str, str]] = {
    "a served network above the budget that says it costs nothing": (
        "budgets",
        """
        def plan_round(self, state, flat, cohort, *rest):
            return super().plan_round(state, flat, [replace(one, budget_macs=1.0) for one in cohort], *rest)

        def served_macs(self, assignment):
            return 0
        """,
        r"client \d+ with a budget of 1 MACs is made to train a network of \d+ in round 0",
    ),
    "in the last round alone": (
        "budgets",
        """
        def plan_round(self, state, flat, cohort, round_index, generator):
            if round_index == 59:
                cohort = [replace(one, budget_macs=1.0) for one in cohort]
            return super().plan_round(state, flat, cohort, round_index, generator)
        """,
        r"client \d+ with a budget of 1 MACs is made to train a network of \d+ in round 59",
    ),
    "a later plan that fails": (
        "one each",
        """
        def plan_round(self, state, flat, cohort, round_index, generator):
            if round_index > 5:
                raise RuntimeError("later rounds fail")
            return super().plan_round(state, flat, cohort, round_index, generator)
        """,
        r"mine.py, line \d+, in plan_round: RuntimeError: later rounds fail",
    ),
    "an answer that counts against the others": (
        "one each",
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return [replace(one, weight=-1.0) for one in assigned], state
        """,
        r"the answer of client \d+ weighs -1.0 in round 0: give a finite number above 0",
    ),
    "an answer that weighs more than there is": (
        "one each",
        """
        def plan_round(self, state, flat, *rest):
            assigned, state = super().plan_round(state, flat, *rest)
            return [replace(one, weight=float("inf")) for one in assigned], state
        """,
        r"the answer of client \d+ weighs inf in round 0",
    ),
    "a vector that a plan changes": (
        "untouched",
        """
        def plan_round(self, state, flat, *rest):
            flat.mul_(0.5)
            return super().plan_round(state, flat, *rest)
        """,
        r"plan_round\(\) of round 0 changes the global vector",
    ),
    "a vector that merging changes": (
        "untouched",
        """
        def merge(self, flat, answers):
            return flat.copy_(super().merge(flat, answers))
        """,
        r"merge\(\) changes the global vector that was sent",
    ),
    "weights that are always the same": (
        "deployed",
        """
        def deploy(self, flat, point):
            return replace(super().deploy(torch.ones_like(flat), point), is_sliced=False)
        """,
        "gives the same weights whatever the global vector holds",
    ),
    "a memory that is changed in its place": (
        "memory",
        """
        def initial_state(self):
            return {"count": torch.zeros(1)}

        def plan_round(self, state, *rest):
            state["count"].add_(1)
            return super().plan_round(state, *rest)
        """,
        r"plan_round\(\) changes the memory that it is given",
    ),
    "a captured network without room": (
        "captured",
        """
        def trained_architectures(self):
            return (self.network.smallest,)
        """
        + PLANS_THE_LARGEST,
        r"captured passes have no room for a network that trained_architectures\(\) does not list",
    ),
    "nothing listed": (
        "listed",
        """
        def trained_architectures(self):
            return ()
        """,
        r"trained_architectures\(\) lists none",
    ),
}


@pytest.mark.parametrize(
    ("rule", "body", "sentence"),
    [
        *(pytest.param(rule, *case, id=rule) for rule, case in BROKEN.items()),
        *(pytest.param(*case, id=name) for name, case in ALSO_BROKEN.items()),
    ],
)
def test_a_violation_is_one_sentence(rule: str, body: str, sentence: str, written: Callable[[str], str]) -> None:
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
    ("rule", "code", "sentence"),
    [
        ("imported", "raise ValueError('not now')", "mine.py, line 1, in <module>: ValueError: not now."),
        ("imported", "\ndef x(:", "mine.py, line 2: SyntaxError: invalid syntax."),
        (
            "imported",
            "import dataclasses\nimport gone",
            "mine.py, line 2, in <module>: ModuleNotFoundError: No module named 'gone'.",
        ),
        (
            "imported",
            HEAD + "    def weights(self, weights, constants):\n        return weights\n",
            "mine.py, line 16, in <module>: TypeError: Mine has weights() of its own: declare changes_weights = True",
        ),
        (
            "built",
            "from dataclasses import dataclass\nfrom fedfeast.federation import Method\n"
            "@dataclass(frozen=True)\nclass Mine(Method):\n    @classmethod\n"
            "    def build(cls, parts, **options):\n        return cls()\n",
            "mine.py, line 7, in build: TypeError: Can't instantiate abstract class Mine",
        ),
    ],
)
def test_what_cannot_be_built_is_told_and_nothing_else_is_tried(
    rule: str, code: str, sentence: str, written: Callable[[str], str]
) -> None:
    report = check_method(written(code), settings=TINY)
    assert (report.passed, report.kept, list(report.violated)) == (False, (), [rule])
    assert sentence in report.violated[rule]
    assert [one["rule"] for one in report.to_json()["rules"]] == [rule]


def test_a_method_without_operating_points_is_told_so(written: Callable[[str], str]) -> None:
    named = written(HEAD + "    least_macs = Method.least_macs\n    def operating_points(self):\n        return ()\n")
    with pytest.raises(
        InvalidInput, match=r"^Mine.operating_points\(\) is empty: return at least one network to serve"
    ):
        check_method(named, settings=TINY)


def test_the_middle_and_the_last_round_are_planned_too() -> None:
    recipe = load_recipe("digits", TINY)
    assert Trial(recipe).rounds == (0, 1, 30, 59)
    short = [
        recipe.model_copy(update={"training": recipe.training.model_copy(update={"rounds": n})}) for n in (1, 2, 3)
    ]
    assert [Trial(one).rounds for one in short] == [(0,), (0, 1), (0, 1, 2)]


@pytest.mark.parametrize("method", ["feast", "heterofl", "nefl", "splitmix"])
@pytest.mark.parametrize("rule", ["single answer", "losses", "same loss", "captured"])
def test_clients_that_add_their_prior_keep_the_rules(method: str, rule: str) -> None:
    recipe = load_recipe("digits", {**TINY, "method.name": method, "training.class_prior": 1.0})
    assert first_violation(RULES[rule], Trial(recipe)) is None


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
