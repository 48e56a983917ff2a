from pathlib import Path

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.population.speeds import pareto_speeds, read_speeds
from fedfeast.randomness import named_generator


def test_a_pareto_tail_has_the_shares_it_promises() -> None:
    speeds = pareto_speeds(100_000, 1e9, 1.5, named_generator(0, "speeds"))
    assert speeds.max() <= 1e9
    for times in (2, 10):
        assert np.mean(speeds <= 1e9 / times) == pytest.approx(times**-1.5, rel=0.05)


def test_a_file_gives_every_client_its_speed_whatever_the_order(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text("name,macs_per_second\nb,2e9\na,1e9\n")
    assert read_speeds(file, ["a", "b"]).tolist() == [1e9, 2e9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,speed\na,1\n", "has the columns name, speed: name and macs_per_second are needed"),
        ("name,macs_per_second\na,fast\n", "line 2 has the macs_per_second 'fast'"),
        ("name,macs_per_second\na,-1\n", "line 2 has the macs_per_second '-1'"),
        ("name,macs_per_second\na,1\na,2\n", "line 3 has the name 'a': give every client one row"),
        ("name,macs_per_second\nb,1\n", "has no speed of the client 'a'"),
    ],
)
def test_a_file_that_says_too_little_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=message.replace("(", "\\(")):
        read_speeds(file, ["a"])


def test_no_file_is_said_with_what_else_there_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"simulation.speeds = .* cannot be read .*: write equal, pareto, or"):
        read_speeds(tmp_path / "none.csv", ["a"])
