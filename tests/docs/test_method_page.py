"""docs/add-a-method.md lists everything that a method can say."""

import re
from pathlib import Path

from fedfeast.federation import Method

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


def test_the_page_lists_every_verb_and_declaration_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    own = {name for name in (*vars(Method), *Method.__annotations__) if not name.startswith("_")}
    assert listed == own
