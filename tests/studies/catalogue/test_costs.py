from collections.abc import Callable

import pytest

from fedfeast.studies.catalogue.costs import COMMUNICATION, FOOTPRINT
from fedfeast.studies.results import Results

MakeUp = Callable[..., Results]


def test_communication_of_the_papers_federation(make_up: MakeUp) -> None:
    (table,) = COMMUNICATION.conclude(make_up(COMMUNICATION)).tables
    cells = table.rows[0].cells
    assert [cell.paper for cell in cells] == [55.68, 8.17, 6.8, 43.8, 22.9, 111.0]
    ours = [cell.ours.mean for cell in cells if cell.ours is not None]
    assert ours == pytest.approx([55.68, 8.02, 6.94, 44.86, 22.94, 111.45], abs=0.01)


def test_footprint_of_the_papers_federation(make_up: MakeUp) -> None:
    (table,) = FOOTPRINT.conclude(make_up(FOOTPRINT)).tables
    rows = {row.label: row.cells for row in table.rows}
    feast = [cell.ours and round(cell.ours.mean, 2) for cell in rows["FEAST"]]
    assert feast == [36.35, 11.78, 31.32, None]
    assert [cell.paper for cell in rows["FEAST"]] == [35.60, 11.78, 31.01, None]
    alone = rows["FEAST, largest variant alone"][3]
    assert alone.ours is not None
    assert alone.ours.mean == pytest.approx(1.60, abs=0.005)
    assert alone.paper == 1.56
    assert rows["ScaleFL"][3].paper == 2.04
    assert (rows["the baselines' least"][0].paper, rows["the baselines' greatest"][0].paper) == (11.22, 11.27)
