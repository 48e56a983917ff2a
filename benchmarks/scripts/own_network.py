"""Rounds of networks of one's own: the eager engine against a bare PyTorch loop, or against the graph engine.

On a CPU the bare loop has one plain nn.Module per member, torch.optim.SGD and clip_grad_norm_, and no server at all: no
routing, no slices, no aggregation. Whoever is compared runs by turns in one process; figures are medians.

python benchmarks/scripts/own_network.py [tokens signals RECIPE...]
python benchmarks/scripts/own_network.py --cuda text speech --set data.folder=FOLDER
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.data import (
    Augmentation,
    Examples,
    Normalisation,
    Preparation,
    ShardedExamples,
    draw_local_plan,
    make_batches,
)
from fedfeast.data.tasks import task_named
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.federation import Assignment, Client, Engine, LocalSgd, Method, RoundOrder, RoundResult
from fedfeast.methods import Feast
from fedfeast.networks.built import BuiltNetwork, Member, elastic
from fedfeast.networks.built.construction import FIXED_SEED, Tensors, construct
from fedfeast.population import Shards
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_sgd
from fedfeast.runs.assembly import assemble
from fedfeast.variants.members import choose_members

RATE = 0.05
WARM_UP = 3  # rounds
VOCABULARY, LENGTH = 80, 80
CLIENTS, EXAMPLES_EACH = 10, 64


class Block(nn.Module):
    """Causal attention and two layers, each added to its input."""

    def __init__(self, heads: int, hidden: int, share: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(64), nn.LayerNorm(64)
        self.query, self.key, self.value = (nn.Linear(64, 16 * heads) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(16 * heads, 64), nn.Linear(64, hidden), nn.Linear(hidden, 64)
        self.dropout = nn.Dropout(share)

    def forward(self, features: Tensor) -> Tensor:
        """Return features (batch, length, 64)."""
        normal, shape = self.before(features), (*features.shape[:2], self.heads, 16)
        query, key, value = (one(normal).view(shape).transpose(1, 2) for one in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        features = features + self.dropout(self.out(mixed))
        return torch.as_tensor(features + self.dropout(self.down(F.gelu(self.up(self.between(features))))))


class Transformer(nn.Module):
    """A causal transformer over symbols."""

    def __init__(self, depth: int, heads: int, hidden: int, share: float) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(VOCABULARY, 64), nn.Parameter(torch.zeros(LENGTH, 64))
        self.blocks = nn.ModuleList(Block(heads, hidden, share) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (batch, length, vocabulary)."""
        features = self.embedding(tokens) + self.position
        for block in self.blocks:
            features = block(features)
        return torch.as_tensor(self.head(self.norm(features)))


@elastic(depth=[1, 2, 4], heads=[2, 4], hidden=[64, 128, 256])
def transformer(depth: int, heads: int, hidden: int, *, share: float = 0.1) -> nn.Module:
    """Return a member for symbols."""
    return Transformer(depth, heads, hidden, share)


class Convolutions(nn.Module):
    """Convolutions over time, each with a batch norm."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv1d(40, width, 5, stride=2, padding=2), nn.BatchNorm1d(width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, signals: Tensor) -> Tensor:
        """Return logits (batch, classes) of (batch, 40, length)."""
        features = F.relu(self.norm(self.stem(signals)))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            features = features + F.relu(norm(layer(features)))
        return torch.as_tensor(self.head(features.mean(dim=2)))


@elastic(width=[16, 32, 64], depth=[1, 2, 4])
def convolutions(width: int, depth: int) -> nn.Module:
    """Return a member for signals."""
    return Convolutions(width, depth)


@dataclass(frozen=True, eq=False)
class Case:
    """What rounds are made of, and who takes part in them."""

    name: str
    method: Method
    examples: ShardedExamples
    preparation: Preparation
    sgd: LocalSgd
    seed: int
    clients: Sequence[Client]
    clients_per_round: int

    @property
    def parts(self) -> tuple[Method, ShardedExamples, Preparation, LocalSgd, int]:
        """The first arguments of an engine."""
        return self.method, self.examples, self.preparation, self.sgd, self.seed

    @property
    def network(self) -> BuiltNetwork:
        """The network of one's own."""
        assert isinstance(self.method.network, BuiltNetwork), "a recipe with network.builder"
        return self.method.network

    def order(self, flat: Tensor, round_index: int) -> RoundOrder:
        """Return a round of clients drawn by its index."""
        count = min(self.clients_per_round, len(self.clients))
        chosen = named_generator(0, "cohort", round_index).choice(len(self.clients), count, replace=False)
        cohort, state = [self.clients[index] for index in chosen], self.method.initial_state()
        planned, _ = self.method.plan_round(state, flat, cohort, round_index, named_generator(0))
        return RoundOrder(flat, planned, round_index, RATE)

    def initial_weights(self, device: torch.device) -> Tensor:
        """Draw the global vector."""
        return self.network.initial_weights(named_generator(0, "weights")).to(device)


def token_case(device: torch.device) -> Case:
    """Return clients that learn the next symbol."""
    drawn = torch.from_numpy(
        named_generator(0, "tokens").integers(0, VOCABULARY, (CLIENTS * EXAMPLES_EACH, LENGTH + 1))
    )
    network = BuiltNetwork(transformer, {}, (LENGTH,), torch.int64)
    return _case("tokens", network, Examples(drawn[:, :-1], drawn[:, 1:]), None, "next-token", device)


def signal_case(device: torch.device) -> Case:
    """Return clients that tell signals apart."""
    generator, count = named_generator(0, "signals"), CLIENTS * EXAMPLES_EACH
    inputs = torch.from_numpy(generator.normal(size=(count, 40, 100))).float()
    labels = torch.from_numpy(generator.integers(0, 10, count))
    normalisation = Normalisation((0.0,) * 40, (1.0,) * 40)
    network = BuiltNetwork(convolutions, {}, (40, 100))
    return _case("signals", network, Examples(inputs, labels), normalisation, "classification", device)


def _case(
    name: str,
    network: BuiltNetwork,
    pool: Examples,
    normalisation: Normalisation | None,
    task: str,
    device: torch.device,
) -> Case:
    cache = choose_members(network, 8, named_generator(0, "members"))
    shards = Shards(np.arange(len(pool)), np.arange(0, len(pool) + 1, EXAMPLES_EACH))
    preparation = Preparation(16, 1, Augmentation(), None, normalisation, task_named(task), draws=network.draws)
    budgets = np.geomspace(cache[0].macs, cache[-1].macs, CLIENTS)
    clients = [Client(index, str(index), float(budgets[index]) + 1, EXAMPLES_EACH) for index in range(CLIENTS)]
    examples = ShardedExamples(pool.to(device), shards)
    return Case(name, Feast(network, cache), examples, preparation, LocalSgd(), 0, clients, CLIENTS)


def recipe_case(name: str, settings: Sequence[str], device: torch.device) -> Case:
    """Return a recipe's federation."""
    recipe = load_recipe(name, [*settings, f"engine.device={device.type}"])
    built = assemble(recipe)
    clients = [built.clients[index] for index in built.participants]
    parts = (built.method, built.examples, built.preparation, build_sgd(recipe, built.method), recipe.seed)
    return Case(name, *parts, clients, recipe.training.clients_per_round)


def find_case(name: str, settings: Sequence[str], device: torch.device) -> Case:
    """Return one of the cases here, or a recipe's."""
    own: dict[str, Callable[[torch.device], Case]] = {"tokens": token_case, "signals": signal_case}
    return own[name](device) if name in own else recipe_case(name, settings, device)


def plain_module(network: BuiltNetwork, member: Member) -> nn.Module:
    """Return a member as its constructor makes it, its norms without running statistics, as in training by batch."""
    module = construct(network.builder, member, network.known, FIXED_SEED).train()
    learning = Tensors.of(module, network.builder.frozen).learning
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in learning)
    for one in module.modules():
        if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            one.track_running_stats = False
            one.running_mean = one.running_var = None
    return module


class BareLoop:
    """Trains every client's passes with plain modules; nothing is sent or merged."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._modules: dict[Hashable, nn.Module] = {}
        self._optimisers: dict[tuple[Hashable, ...], torch.optim.SGD] = {}

    def run_round(self, assignments: Sequence[Assignment], round_index: int) -> None:
        """Train the clients one after another."""
        case = self._case
        for assignment in assignments:
            generator = named_generator(case.seed, "round", round_index, "client", assignment.client.index)
            examples = case.examples.of_client(assignment.client.index)
            plan = draw_local_plan(len(examples), examples.shape, case.preparation, round_index, generator)
            for step, batch in enumerate(make_batches(examples, plan, case.preparation, torch.float32)):
                passes = case.method.passes(assignment, step, generator)
                optimiser = self._optimiser(tuple(dict.fromkeys(one.architecture for one in passes)))
                optimiser.zero_grad()
                carried = None
                for one in passes:
                    outputs = (self._module(one.architecture)(batch.inputs),)
                    loss, carried = case.method.loss(one.role, outputs, batch, carried, {})
                    loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], case.sgd.clip_norm)
                optimiser.step()

    def _module(self, architecture: Hashable) -> nn.Module:
        if architecture not in self._modules:
            assert isinstance(architecture, Member)
            self._modules[architecture] = plain_module(self._case.network, architecture)
        return self._modules[architecture]

    def _optimiser(self, architectures: tuple[Hashable, ...]) -> torch.optim.SGD:
        if architectures not in self._optimisers:
            modules = [self._module(one) for one in architectures]
            learning = [one for module in modules for one in module.parameters() if one.requires_grad]
            self._optimisers[architectures] = torch.optim.SGD(learning, RATE, weight_decay=self._case.sgd.weight_decay)
        return self._optimisers[architectures]


def by_turns(works: dict[str, Callable[[int], object]], rounds: int, finish: Callable[[], object]) -> dict[str, float]:
    """Return the median seconds a round of each, the order changing from round to round."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for round_index in range(rounds):
        items = list(works.items())
        for name, work in items if round_index % 2 else items[::-1]:
            finish()
            started = time.perf_counter()
            work(round_index)
            finish()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_on_cpu(case: Case, rounds: int) -> dict[str, Any]:
    """Compare the eager engine with a bare loop."""
    flat, eager, bare = case.initial_weights(torch.device("cpu")), EagerEngine(*case.parts), BareLoop(case)
    works: dict[str, Callable[[int], object]] = {
        "bare": lambda index: bare.run_round(case.order(flat, index).assignments, index),
        "eager": lambda index: eager.run_round(case.order(flat, index)),
    }
    by_turns(works, WARM_UP, lambda: None)
    medians = by_turns(works, rounds, lambda: None)
    return {
        "case": case.name,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "bare_seconds_per_round": round(medians["bare"], 4),
        "eager_seconds_per_round": round(medians["eager"], 4),
        "ratio": round(medians["eager"] / medians["bare"], 3),
    }


def measure_on_cuda(case: Case, rounds: int, precision: Precision) -> dict[str, Any]:
    """Compare the graph engine with the eager one over the same rounds, once all graphs of these are captured."""
    device = torch.device("cuda")
    flat = case.initial_weights(device)
    eager, graphs = EagerEngine(*case.parts, torch.float32, device), GraphEngine(*case.parts, precision, device)

    def run(engine: Engine, round_index: int) -> RoundResult:
        torch.backends.cudnn.deterministic = engine is graphs  # alone, the eager engine leaves the choice to cuDNN
        return engine.run_round(case.order(flat, round_index))

    by_turns({"eager": partial(run, eager)}, min(WARM_UP, rounds), torch.cuda.synchronize)
    started = time.perf_counter()
    first = [run(graphs, index) for index in range(rounds)]
    torch.cuda.synchronize()
    with_capturing = time.perf_counter() - started
    expected = run(eager, 0).flat
    medians = by_turns({"eager": partial(run, eager), "graphs": partial(run, graphs)}, rounds, torch.cuda.synchronize)
    free, total = torch.cuda.mem_get_info()
    return {
        "case": case.name,
        "rounds": rounds,
        "steps_per_round": sum(one.num_steps for one in first) / rounds,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "products": str(graphs.context.precision.products or graphs.context.precision.weights),
        "engine": first[-1].notes.get("engine", "graphs"),
        "graphs": graphs.context.num_graphs,
        "eager_seconds_per_round": round(medians["eager"], 4),
        "graphs_seconds_per_round": round(medians["graphs"], 4),
        "ratio": round(medians["eager"] / medians["graphs"], 2),
        "seconds_of_the_first_rounds": round(with_capturing, 2),
        "of_these_capturing": round(sum(one.setup_seconds for one in first), 2),
        "apart_after_a_round": float((first[0].flat - expected).norm() / (expected - flat).norm()),
        "device_gib": round((total - free) / 2**30, 2),
    }


def main() -> None:
    """Measure the named cases one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["tokens", "signals"], help="tokens, signals, or recipes")
    parser.add_argument("--cuda", action="store_true", help="the graph engine against the eager one")
    parser.add_argument("--bfloat16", action="store_true", help="round products on the graph engine")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    precision = Precision(torch.float32, torch.bfloat16 if arguments.bfloat16 else torch.float32)
    for name in arguments.cases:
        case = find_case(name, arguments.settings, torch.device("cuda" if arguments.cuda else "cpu"))
        rounds = arguments.rounds
        result = measure_on_cuda(case, rounds, precision) if arguments.cuda else measure_on_cpu(case, rounds)
        print(json.dumps(result, indent=2), flush=True)


if __name__ == "__main__":
    main()
