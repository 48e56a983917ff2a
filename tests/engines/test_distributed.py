"""Real processes under torchrun against one process, in float64; killed, resumed, refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fedfeast.engines import DistributedEngine
from fedfeast.engines.distributed import measure_curve, share_out
from fedfeast.engines.ranks import Ranks
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import assemble

SETTINGS = {
    "training.rounds": 3,
    "evaluation.every_rounds": 3,
    "checkpoint.every_rounds": 2,
    "engine.precision": "float64",
    "engine.threads": 1,
}
TOLERANCE = 1e-6
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

CHECK = """
import sys, torch
from fedfeast.engines.ranks import join_ranks
from fedfeast.engines import DistributedEngine
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

ranks = join_ranks()
built = assemble(load_recipe("digits", {"engine.precision": "float64", "engine.threads": 1}))
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
"""


def words(out: Path, settings: dict[str, Any]) -> list[str]:
    return ["train", "digits", "--out", str(out)] + [
        word for key, value in settings.items() for word in ("--set", f"{key}={value}")
    ]


def launched(out: Path, settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, "-m", "fedfeast", *words(out, settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


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
    built = assemble(load_recipe("digits"))
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


def test_a_round_and_an_empty_share_give_every_rank_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    done = subprocess.run([*LAUNCH, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.create("digits", tmp_path_factory.mktemp("alone") / "run", SETTINGS).train()


def assert_same_run(out: Path, alone: Run) -> None:
    ours, theirs = (load_file(path / "checkpoints" / "round-000003.safetensors") for path in (out, alone.folder.path))
    assert (ours["weights"] - theirs["weights"]).abs().max() < TOLERANCE
    rows, expected = Run.open(out).folder.metrics(), alone.folder.metrics()
    assert [row["clients"] for row in rows] == [row["clients"] for row in expected]
    assert [row["steps"] for row in rows] == [row["steps"] for row in expected]
    assert [row["losses"] for row in rows] == [pytest.approx(row["losses"], abs=TOLERANCE) for row in expected]
    assert rows[-1]["validation_score"] == pytest.approx(expected[-1]["validation_score"])
    assert Run.open(out).curve == alone.curve


def test_two_ranks_equal_one_process(alone: Run, tmp_path: Path) -> None:
    done = launched(tmp_path / "run", SETTINGS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("population score") == 1
    assert_same_run(tmp_path / "run", alone)
    environment = Run.open(tmp_path / "run").folder.environment()
    assert (environment["processes"], environment["threads"]) == (2, 1)


def launch_until(out: Path, rounds: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Start two ranks and return, with their process ids, when so many rounds are finished."""
    process = subprocess.Popen(
        [*LAUNCH, "-m", "fedfeast", *words(out, SETTINGS)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline, metrics = time.monotonic() + 60, out / "metrics.jsonl"
    while not (metrics.is_file() and metrics.read_bytes().count(b"\n") >= rounds):
        assert time.monotonic() < deadline, f"no round {rounds}"
        assert process.poll() is None, f"ended before round {rounds}"
        time.sleep(0.005)
    return process, children_of(process)


@pytest.mark.parametrize("killed_rank", [0, 1])
def test_after_kill_9_of_a_rank_the_same_command_goes_on(alone: Run, tmp_path: Path, killed_rank: int) -> None:
    out = tmp_path / "run"
    process, ranks = launch_until(out, 2)
    os.kill(ranks[killed_rank], signal.SIGKILL)
    process.communicate(timeout=40)
    assert process.returncode != 0
    assert not any(map(is_running, ranks))
    assert not (out / "summary.json").exists()
    done = launched(out, SETTINGS)
    assert done.returncode == 0, done.stderr
    assert_same_run(out, alone)


def test_ctrl_c_ends_all_ranks_and_one_process_may_go_on(alone: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process, ranks = launch_until(out, 1)
    for pid in (process.pid, *ranks):  # as a terminal does
        os.kill(pid, signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert process.returncode != 0
    assert not any(map(is_running, ranks))
    assert errors.count("all of it is saved") == 1
    assert f"torchrun --nproc-per-node 2 -m fedfeast train digits --out {out}" in errors
    run = Run.create("digits", out, SETTINGS).train()
    assert_same_run(out, alone)
    assert run.folder.environment()["processes"] == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"training.round": 3}, "did you mean 'training.rounds'?"),
        ({"training.learning_rate": 1e30}, "training diverged in round 1"),
    ],
)
def test_what_is_wrong_is_said_once_and_every_rank_ends_with_2(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    done = launched(tmp_path / "run", settings)
    assert done.returncode != 0
    assert done.stderr.count(sentence) == 1
    assert done.stderr.count("error: ") == 1
    assert done.stderr.count("exitcode  : 2") == 2  # torchrun's own report on both ranks


def test_a_folder_in_use_is_refused_on_every_rank(alone: Run) -> None:
    before = (alone.folder.path / "metrics.jsonl").read_bytes()
    with alone.folder.locked():
        done = launched(alone.folder.path, SETTINGS)
    assert done.returncode != 0
    assert done.stderr.count("another process is training in") == 1
    assert done.stderr.count("exitcode  : 2") == 2
    assert (alone.folder.path / "metrics.jsonl").read_bytes() == before
