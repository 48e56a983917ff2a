"""The examples as their readers run them."""

import runpy
from pathlib import Path

import pytest
from processes import run_script

import fedfeast

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_LINES = 80
ROUNDS = '"training.rounds": 20'  # of the page; fewer here
# What each of them prints in its default form, beside figures.
SAYS = {
    "own_network": ("small_cnn nests: 6 members", "the watch's network", "gives 10 logits"),
    "own_data": ("13 houses train, 5 are held out", "root mean squared error", "r2"),
    "speech": ("held-out clients:", "known clients:", "MACs"),
    "adapters": ("rank=1:", "rank=8:", "numbers sent of"),
}


def test_every_example_is_known_here_and_short() -> None:
    files = {file.stem: len(file.read_text().splitlines()) for file in EXAMPLES.glob("*.py")}
    assert files.keys() == SAYS.keys()
    assert max(files.values()) < MOST_LINES


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_and_says_its_result(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.py"
    assert f"python examples/{name}.py" in file.read_text().split('"""')[1], "its header says how to run it"
    said = run_script(file, tmp_path / "log")
    for words in SAYS[name]:
        assert words in said
    if name == "speech":  # its point: better than guessing one of five, on speakers that never trained
        largest = said.split("known clients")[0].strip().splitlines()[-1]
        assert float(largest.split("MACs")[1].split()[0]) > 50


def test_the_page_on_own_networks_shows_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (EXAMPLES.parent / "docs" / "own-network.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    assert program.count(ROUNDS) == 1
    monkeypatch.chdir(tmp_path)
    Path("my_model.py").write_text(program.replace(ROUNDS, '"training.rounds": 1'))
    runpy.run_path("my_model.py", run_name="__main__")
    assert "cnn nests: 6 members" in capsys.readouterr().out
    assert len(fedfeast.Run.open("runs/mine").curve.points) >= 5
