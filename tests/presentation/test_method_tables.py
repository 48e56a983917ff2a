from io import StringIO

from rich.console import Console

from fedfeast.presentation.method_tables import print_methods

POINT = {"name": "25M", "macs": 25_000_000, "parameters": 7}
METHOD = {
    "name": "mine",
    "summary": "Does [something].",
    "paper": "Somebody, 2026",
    "keeps_budgets": True,
    "parameters": 1234,
    "options": {"width": [0.5, 1]},
    "operating_points": [POINT, {**POINT, "name": "50M"}],
}


def printed(**changes: object) -> str:
    console = Console(file=StringIO(), width=100)
    print_methods([{**METHOD, **changes}], "digits", console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_method_is_shown_with_what_it_serves() -> None:
    text = printed()
    assert "operating points for digits" in text
    for part in ("mine", "Does [something].", "Somebody, 2026", "25M, 50M MACs, of 1,234", "width = [0.5, 1]"):
        assert part in text
    assert "budgets" not in text
    assert "does not keep budgets" in printed(keeps_budgets=False)


def test_many_points_are_shown_by_their_ends() -> None:
    many = [{**POINT, "name": f"{number}M"} for number in range(1, 9)]
    assert "serves 8 points from 1M to 8M MACs" in printed(operating_points=many)
