import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedfeast.engines.ranks import LostRank, Ranks, join_ranks, noticing_losses
from fedfeast.errors import InvalidInput

# Every rank prints what it saw; rank 1 then leaves without a word, as a killed process does.
TALK = """
import os, sys, torch
from fedfeast.engines.ranks import LostRank, join_ranks
from fedfeast.errors import InvalidInput

ranks = join_ranks()
assert ranks is join_ranks() and ranks.size == 2 and ranks.local_size == 2 and ranks.leads == (ranks.rank == 0)
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


def test_two_processes_talk_and_notice_a_loss(tmp_path: Path) -> None:
    script = tmp_path / "talk.py"
    script.write_text(TALK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "no such thing", "noticed"]


def test_memory_that_runs_out_is_no_lost_rank() -> None:
    with pytest.raises(torch.OutOfMemoryError), noticing_losses():
        raise torch.OutOfMemoryError("out of memory")
    with (
        pytest.raises(LostRank, match=r"another process of this training was lost \(closed by peer\)"),
        noticing_losses(),
    ):
        raise RuntimeError("closed by peer")
