"""What every method must keep. A new method is tested by adding one line to CASES."""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.data import draw_local_plan, make_batches
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.federation import Assignment, LocalSgd, Merged, RoundOrder, ServerOptimiser
from fedfeast.methods import METHODS
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.runs.checkpoint import CheckpointFolder, TrainingState

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
RATE = 0.05


@cache
def federation(case: str, seed: int = 0) -> Federation:
    return assemble(load_recipe("digits", {**TINY, **CASES[case], "seed": seed}))


def assignments(
    built: Federation, clients: tuple[int, ...], round_index: int = 0, flat: torch.Tensor | None = None
) -> list[Assignment]:
    cohort = [built.clients[index] for index in clients]
    generator = named_generator(built.recipe.seed, "plan", round_index)
    flat = built.initial_weights() if flat is None else flat
    return built.method.plan_round(built.method.initial_state(), flat, cohort, round_index, generator)[0]


def two_rounds(built: Federation) -> torch.Tensor:
    engine, flat = built.engine(), built.initial_weights()
    for round_index in range(2):
        planned = assignments(built, built.participants[:3], round_index)
        flat = engine.run_round(RoundOrder(flat, planned, round_index, RATE)).flat
    return flat


def test_every_registered_method_has_a_case() -> None:
    assert {case["method.name"] for case in CASES.values()} == set(METHODS)


@every_method
def test_a_method_is_a_frozen_record_of_hyper_parameters(case: str) -> None:
    method = federation(case).method
    assert is_dataclass(method)
    with pytest.raises(FrozenInstanceError):
        setattr(method, fields(method)[-1].name, None)
    assert hash(method) == hash(method)


@every_method
def test_same_seed_same_result(case: str) -> None:
    first = two_rounds(federation(case))
    assert torch.equal(first, two_rounds(federation(case)))
    assert not torch.equal(first, two_rounds(federation(case, seed=1)))


@every_method
def test_never_a_network_above_a_clients_budget(case: str) -> None:
    built = federation(case)
    for assignment in assignments(built, built.participants):
        generator = named_generator(0, "passes", assignment.client.index)
        for step in range(20):
            for one_pass in built.method.passes(assignment, step, generator):
                assert one_pass.architecture in assignment.architectures
        if built.method.keeps_budgets:
            assert built.method.served_macs(assignment) <= assignment.client.budget_macs


@every_method
def test_plans_look_at_weights_only_where_that_is_said(case: str) -> None:
    built = federation(case)
    if built.method.plans_by_weights:
        with pytest.raises((RuntimeError, IndexError)):
            assignments(built, built.participants, flat=torch.empty(0))
        return
    pairs = zip(*(assignments(built, built.participants, flat=flat) for flat in (None, torch.empty(0))), strict=True)
    for by_weights, without in pairs:
        assert by_weights.architectures == without.architectures
        assert by_weights.weight == without.weight
        assert torch.equal(by_weights.slice_map.index(), without.slice_map.index())


@every_method
def test_expected_passes_are_the_mean_of_the_passes(case: str) -> None:
    built = federation(case)
    for assignment in assignments(built, built.participants[::6]):
        generator = named_generator(0, "passes", assignment.client.index)
        drawn: Counter[Hashable] = Counter()
        for step in range(600):
            for one_pass in built.method.passes(assignment, step, generator):
                drawn[one_pass.architecture] += one_pass.part  # type: ignore[assignment]
        expected = built.method.expected_passes(assignment)
        assert drawn.keys() == expected.keys()
        assert all(abs(drawn[one] / 600 - expected[one]) < 0.1 for one in expected)


@every_method
def test_those_who_can_afford_nothing_do_not_train(case: str) -> None:
    built = federation(case)
    least = built.method.operating_points()[0].price
    assert built.method.trains(float(least))
    if built.method.keeps_budgets:
        assert not built.method.trains(float(least - 1))
    assert all(built.clients[index].budget_macs >= least for index in built.participants)


@every_method
def test_what_is_trained_was_sent(case: str) -> None:
    built = federation(case)
    for assignment in assignments(built, built.participants):
        sent = assignment.slice_map.layout.shapes
        for architecture in assignment.architectures:
            for name, shape in built.method.network.shapes(architecture).items():
                assert all(part <= whole for part, whole in zip(shape, sent[name], strict=True))


@every_method
def test_positions_not_sent_stay_bit_identical(case: str) -> None:
    built = federation(case)
    small = min(built.participants, key=lambda index: built.clients[index].budget_macs)
    planned = assignments(built, (small,))
    before = built.initial_weights()
    after = built.engine().run_round(RoundOrder(before.clone(), planned, 0, RATE)).flat
    sent = torch.zeros(before.numel(), dtype=torch.bool)
    sent[planned[0].slice_map.index().long()] = True
    assert torch.equal(after[~sent], before[~sent])
    assert not torch.equal(after[sent], before[sent])


@every_method
def test_servers_that_step_or_look_ahead_move_only_what_was_answered(case: str) -> None:
    built = federation(case)
    small = min(built.participants, key=lambda index: built.clients[index].budget_macs)
    cohorts = (built.participants[-1:], (small,), (small,))
    for common in (ServerOptimiser(lookahead=0.8), ServerOptimiser("adam")):
        server, flat = built.method.server_optimiser(common), built.initial_weights()
        state, engine = server.initial_state(flat), built.engine()
        for round_index, cohort in enumerate(cohorts):
            sent = server.sent(state, flat)
            planned = assignments(built, cohort, round_index, sent)
            result = engine.run_round(RoundOrder(sent, planned, round_index, RATE))
            before, (flat, state) = flat, server.server_step(state, flat, Merged(sent, result.flat, result.answered))
            routed = torch.zeros(flat.numel(), dtype=torch.bool)
            for assignment in planned:
                routed[assignment.slice_map.index().long()] = True
            assert not bool((result.answered & ~routed).any())
            assert torch.equal(flat[~result.answered], before[~result.answered])
            assert not torch.equal(flat[result.answered], before[result.answered])
            assert bool(torch.isfinite(flat).all())


@every_method
def test_in_a_cohort_of_one_every_position_sent_takes_the_returned_value(case: str) -> None:
    built = federation(case)
    (assignment,) = assignments(built, built.participants[-1:])
    flat = built.initial_weights()
    merged = built.engine().run_round(RoundOrder(flat, [assignment], 0, RATE)).flat

    client, training = assignment.client.index, built.recipe.training
    generator = named_generator(built.recipe.seed, "round", 0, "client", client)
    examples = built.examples.of_client(client)
    plan = draw_local_plan(len(examples), examples.shape, built.preparation, 0, generator)
    slot = ClientSlot(built.method, torch.float32, built.device)
    slot.load(assignment, assignment.slice_map.gather(flat))
    batches = make_batches(examples, plan, built.preparation, torch.float32)
    sgd = built.method.optimiser(LocalSgd(training.weight_decay, training.clip_norm))
    train_client(built.method, assignment, slot, batches, sgd, RATE, generator)
    slices = assignment.slice_map
    counted = built.method.counted(assignment, slices.gather(flat), slot.weights)
    expected = slot.weights if counted is None else torch.where(counted, slot.weights, slices.gather(flat))
    assert torch.equal(merged[slices.index().long()], slices.pack(expected))


@every_method
@pytest.mark.parametrize("is_authors", [False, True], ids=["as by default", "momentum, short batches, kept tensors"])
def test_captured_rounds_equal_eager_ones(case: str, is_authors: bool) -> None:
    built = federation(case)
    training, whole, preparation = built.recipe.training, torch.float64, built.preparation
    common = LocalSgd(training.weight_decay, training.clip_norm)
    if is_authors:
        common = replace(common, momentum=0.9, unreached="keep")
        preparation = replace(preparation, last_batch="short")
    parts = (built.method, built.examples, preparation, built.method.optimiser(common), built.recipe.seed)
    planned, flat = assignments(built, built.participants[:3]), built.initial_weights().double()
    eager = EagerEngine(*parts, whole, built.device).run_round(RoundOrder(flat, planned, 0, RATE))
    graphs = GraphEngine(*parts, Precision(whole, whole), built.device).run_round(RoundOrder(flat, planned, 0, RATE))
    assert float((graphs.flat - eager.flat).norm() / (eager.flat - flat).norm()) < 1e-6
    assert graphs.num_steps == eager.num_steps
    assert graphs.losses == pytest.approx(eager.losses, rel=1e-6)


@every_method
def test_declared_cost_is_the_deployed_networks(case: str) -> None:
    built = federation(case)
    flat = built.initial_weights()
    images = built.test.test.inputs[:2].float()
    points = built.method.operating_points()
    assert [point.macs for point in points] == sorted({point.macs for point in points})
    for point in points:
        deployed = built.method.deploy(flat, point)
        if built.method.keeps_budgets:
            assert deployed.macs <= point.macs
        if built.method.changes_weights:
            continue  # zeros in place of weights: the cost is counted by the method's own tests
        assert deployed.flat.numel() == deployed.parameters == point.parameters
        with FlopCounterMode(display=False) as counter:
            logits = deployed(images, by_batch)
        assert counter.get_total_flops() / 2 / len(images) == deployed.macs == point.macs
        assert logits.shape == (2, 10)


@every_method
def test_the_state_survives_save_and_load(case: str, tmp_path: Path) -> None:
    built = federation(case)
    state = built.method.initial_state()
    for round_index in range(3):
        cohort = [built.clients[index] for index in built.participants[:4]]
        generator = named_generator(0, "plan", round_index)
        _, state = built.method.plan_round(state, built.initial_weights(), cohort, round_index, generator)
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.save(TrainingState(3, built.initial_weights(), state))
    loaded, damaged = folder.load_latest()
    assert loaded is not None
    assert damaged == []
    assert loaded.method_state.keys() == state.keys()
    assert all(torch.equal(loaded.method_state[key], state[key]) for key in state)
