import io

from rich.console import Console

from fedfeast.app.output import show

FACT = "traffic saved      2.09x less than sending the whole supernet (66,001 of 137,714 parameters a client)"


def shown(line: str, width: int, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    show(Console(file=stream, width=width, force_terminal=terminal, color_system=None), line)
    return stream.getvalue().splitlines()


def test_a_long_line_is_broken_between_words_for_a_narrow_terminal() -> None:
    assert shown(FACT, 60) == [
        "traffic saved      2.09x less than sending the whole",
        "                   supernet (66,001 of 137,714 parameters a",
        "                   client)",
    ]
    assert shown(FACT, 110) == [FACT]
    assert shown("60 rounds will take about 20.9 s here (1 thread)", 30) == [
        "60 rounds will take about 20.9",
        "s here (1 thread)",
    ]


def test_files_pipes_and_what_is_indented_keep_their_lines() -> None:
    assert shown(FACT, 60, terminal=False) == [FACT]
    command = "  fedfeast train digits-ladder --out runs/a --set training.rounds=3"
    assert "".join(shown(command, 30)) == command
