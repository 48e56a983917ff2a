"""Real processes under torchrun against one process, in float64; killed, resumed, refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from natural_data import natural_recipe
from processes import ended, start
from safetensors.torch import load_file
from tiny import TINY, as_words

from fedfeast.engines import DistributedEngine
from fedfeast.engines.distributed import measure_curve, share_out
from fedfeast.engines.ranks import LostRank, Ranks, join_ranks, noticing_losses
from fedfeast.errors import InvalidInput
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run, train
from fedfeast.runs.assembly import assemble

SETTINGS = {
    **TINY,
    "training.rounds": 16,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 16,
    "checkpoint.every_rounds": 2,
    "engine.precision": "float64",
    "server.lookahead": 0.5,
    "server.average": 0.8,
}
TOLERANCE = 1e-6
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

# Rounds of both ranks against one; then every rank tells what it hears, and rank 1 leaves without a word, as if killed.
CHECK = """
import os, torch
from fedfeast.engines.ranks import LostRank, join_ranks
from fedfeast.engines import DistributedEngine
from fedfeast.errors import InvalidInput
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

ranks = join_ranks()
assert ranks is join_ranks() and ranks.size == 2 and ranks.local_size == 2 and ranks.leads == (ranks.rank == 0)
built = assemble(load_recipe("digits", SETTINGS))
engine = DistributedEngine(built.engine(), ranks, built.preparation)
flat = built.initial_weights()
for count in (1, 5):  # one client leaves a share empty
    cohort = [built.clients[index] for index in built.participants[:count]]
    planned, _ = built.method.plan_round({}, built.initial_weights(), cohort, 0, named_generator(0))
    result = engine.run_round(RoundOrder(flat, planned, 0, 0.1))
    alone = built.engine().run_round(RoundOrder(flat, planned, 0, 0.1))
    torch.testing.assert_close(result.flat, alone.flat, rtol=0, atol=1e-6)
    assert result.num_steps == alone.num_steps and result.losses.keys() == alone.losses.keys()
    assert all(abs(result.losses[role] - alone.losses[role]) < 1e-9 for role in alone.losses)
    everywhere = ranks.gather(result.flat)
    assert len(everywhere) == 2 and all(torch.equal(result.flat, other) for other in everywhere)

assert ranks.from_leader(lambda: f"said by {ranks.rank}") == "said by 0"
assert ranks.gather(ranks.rank) == [0, 1]
numbers = torch.tensor([1.0, ranks.rank], dtype=torch.float64)
ranks.add_up_(numbers)
assert numbers.tolist() == [2.0, 1.0]

def refuse():
    raise InvalidInput("no such thing")

try:
    ranks.from_leader(refuse)
except InvalidInput as error:
    ranks.say_once(lambda: print(error, flush=True))
ranks.gather(None)
if ranks.rank == 1:
    os._exit(0)
try:
    ranks.gather(None)
except LostRank:
    print("noticed", flush=True)
"""


def words(out: Path, settings: dict[str, Any]) -> list[str]:
    return ["train", "digits", "--out", str(out), *as_words(settings)]


def launched(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCH, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def children_of(process: subprocess.Popen[Any]) -> list[int]:
    """Return the ranks that torchrun started, rank 0 first."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(status.parent.name), status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if int(rest[1]) == process.pid:
            found.append(pid)
    return sorted(found)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")  # alone, it is another launcher's and says nothing
    ranks = join_ranks.__wrapped__()
    assert (ranks.rank, ranks.size, ranks.leads) == (0, 1, True)


def test_alone_every_exchange_is_trivial() -> None:
    ranks, said = Ranks(), []
    numbers = torch.ones(2)
    ranks.add_up_(numbers)
    ranks.say_once(lambda: said.append("once"))
    assert ranks.from_leader(lambda: 3) == 3
    assert ranks.gather("a") == ["a"]
    assert numbers.tolist() == [1.0, 1.0]
    assert said == ["once"]
    with pytest.raises(InvalidInput, match="no"):
        ranks.from_leader(_refuse)


def _refuse() -> None:
    raise InvalidInput("no")


def test_memory_that_runs_out_is_no_lost_rank() -> None:
    with pytest.raises(torch.OutOfMemoryError), noticing_losses():
        raise torch.OutOfMemoryError("out of memory")
    with (
        pytest.raises(LostRank, match=r"another process of this training was lost \(closed by peer\)"),
        noticing_losses(),
    ):
        raise RuntimeError("closed by peer")


def test_the_costliest_goes_first_to_the_idlest() -> None:
    assert share_out([1.0, 7.0, 3.0, 3.0, 2.0], 2) == [[0, 1], [2, 3, 4]]
    assert share_out([5.0], 3) == [[0], [], []]
    assert share_out([], 2) == [[], []]
    costs = named_generator(0, "costs").pareto(1.5, 50).tolist()
    shares = share_out(costs, 4)
    assert sorted(position for share in shares for position in share) == list(range(50))
    work = [sum(costs[position] for position in share) for share in shares]
    assert max(work) <= max(max(costs), sum(costs) / 4 + max(costs) / 4)


def test_alone_it_equals_its_inner_engine() -> None:
    built = assemble(load_recipe("digits", TINY))
    cohort = [built.clients[index] for index in built.participants[:2]]
    planned, _ = built.method.plan_round({}, built.initial_weights(), cohort, 0, named_generator(0))
    flat = built.initial_weights()
    wrapped = DistributedEngine(built.engine(), Ranks(), built.preparation)
    result, plain = (engine.run_round(RoundOrder(flat, planned, 0, 0.1)) for engine in (wrapped, built.engine()))
    assert bool((result.flat == plain.flat).all())
    assert (result.num_steps, result.losses) == (plain.num_steps, plain.losses)
    points = built.method.operating_points()[:2]
    together = measure_curve(Ranks(), built.validation, built.method, flat, points)
    assert together == built.validation.curve(built.method, flat, points)


def test_two_processes_agree_to_the_bit_talk_and_notice_a_loss(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(CHECK.replace("SETTINGS", repr(SETTINGS)))
    done = launched(script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "no such thing", "noticed"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.create("digits", tmp_path_factory.mktemp("alone") / "run", SETTINGS).train()


def assert_same_run(out: Path, alone: Run) -> None:
    ours, theirs = (load_file(path / "checkpoints" / "round-000016.safetensors") for path in (out, alone.folder.path))
    assert {"weights", "server.before", "server.average"} < ours.keys() == theirs.keys()
    for name, vector in ours.items():
        assert (vector - theirs[name]).abs().max() < TOLERANCE, name
    rows, expected = Run.open(out).folder.metrics(), alone.folder.metrics()
    assert [row["clients"] for row in rows] == [row["clients"] for row in expected]
    assert [row["steps"] for row in rows] == [row["steps"] for row in expected]
    assert [row["losses"] for row in rows] == [pytest.approx(row["losses"], abs=TOLERANCE) for row in expected]
    assert rows[-1]["validation_score"] == pytest.approx(expected[-1]["validation_score"])
    ours_by_size, theirs_by_size = Run.open(out).size_history, alone.size_history
    assert list(ours_by_size) == list(theirs_by_size)
    assert all(ours_by_size[name] == pytest.approx(values) for name, values in theirs_by_size.items())
    assert Run.open(out).curve == alone.curve


def test_two_ranks_equal_one_process(alone: Run, tmp_path: Path) -> None:
    done = launched("-m", "fedfeast", *words(tmp_path / "run", SETTINGS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("population score") == 1
    assert_same_run(tmp_path / "run", alone)
    environment = Run.open(tmp_path / "run").folder.environment()
    assert (environment["processes"], environment["threads"]) == (2, 1)


def finished_rounds(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.is_file() else 0


def launch_for_two_rounds(out: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start two ranks and return, with their process ids, when two more rounds are finished."""
    wanted = finished_rounds(out) + 2
    process = subprocess.Popen(
        [*LAUNCH, "-m", "fedfeast", *words(out, SETTINGS)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while finished_rounds(out) < wanted:
        assert time.monotonic() < deadline, f"no round {wanted}"
        assert process.poll() is None, f"ended before round {wanted}"
        time.sleep(0.005)
    return process, children_of(process)


def test_two_ranks_equal_one_with_dropout_and_the_data_s_own_clients(tmp_path: Path) -> None:
    settings = (
        "network.builder=conv1d",
        "network.choices={width=[2, 4], depth=[1, 2]}",
        "network.options={dropout=0.3}",
        "population.least_macs=5e3",
        "population.greatest_macs=2e4",
        'data.held_out_clients=["dora"]',
        "evaluation.by=clients",
        "augmentation.noise=0.1",
    )
    recipe = natural_recipe(tmp_path, "moves", *settings)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    done = launched("-m", "fedfeast", "train", tmp_path / "recipe.toml", "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    one, two = train(recipe, tmp_path / "one"), Run.open(tmp_path / "two")
    torch.testing.assert_close(two.best().flat, one.best().flat, rtol=0, atol=TOLERANCE)
    assert two.curve == one.curve
    assert two.folder.client_values() == one.folder.client_values()
    scores = [[row["validation_score"] for row in run.folder.metrics()] for run in (one, two)]
    assert scores[1] == pytest.approx(scores[0])


def test_after_any_end_the_same_command_goes_on(alone: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for killed_rank in (0, 1):
        process, ranks = launch_for_two_rounds(out)
        os.kill(ranks[killed_rank], signal.SIGKILL)
        process.communicate(timeout=40)
        assert process.returncode != 0
        assert not any(map(is_running, ranks))
        assert not (out / "summary.json").exists()

    process, ranks = launch_for_two_rounds(out)
    for pid in (process.pid, *ranks):  # Ctrl-C, as a terminal hands it on
        os.kill(pid, signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert process.returncode != 0
    assert not any(map(is_running, ranks))
    assert errors.count("all of it is saved") == 1
    assert f"torchrun --nproc-per-node 2 -m fedfeast train digits --out {out}" in errors
    assert 6 <= finished_rounds(out) < 16

    run = Run.create("digits", out, SETTINGS).train()  # one process may go on where two were
    assert_same_run(out, alone)
    assert run.folder.environment()["processes"] == 1


def two_ranks(out: Path, settings: dict[str, Any], log: Path) -> list[int]:
    """Train in two ranks that a store here brings together, as torchrun's does; return their exit codes."""
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not export it to type checkers
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        start(words(out, settings), log, {**place, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    return [ended(rank) for rank in ranks]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"training.round": 3}, "did you mean 'training.rounds'?"),
        ({**TINY, "training.learning_rate": 1e30}, "training diverged in round 1"),
    ],
)
def test_what_is_wrong_is_said_once_and_every_rank_ends_with_2(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    assert two_ranks(tmp_path / "run", settings, tmp_path / "log") == [2, 2]
    said = (tmp_path / "log").read_text()
    assert said.count(sentence) == 1
    assert said.count("error: ") == 1


def test_a_folder_in_use_is_refused_on_every_rank(alone: Run, tmp_path: Path) -> None:
    before = (alone.folder.path / "metrics.jsonl").read_bytes()
    with alone.folder.locked():
        assert two_ranks(alone.folder.path, SETTINGS, tmp_path / "log") == [2, 2]
    assert (tmp_path / "log").read_text().count("another process is training in") == 1
    assert (alone.folder.path / "metrics.jsonl").read_bytes() == before
