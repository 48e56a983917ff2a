from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.federation import Client
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.roster import Roster, read_roster

KITCHEN, HALL = Client(-1, "kitchen", 2e6, 30, (0, 4)), Client(-1, "hall", 1e5, 10, (3,))


def test_a_name_keeps_its_index(tmp_path: Path) -> None:
    roster = Roster().joined([(KITCHEN, ""), (HALL, "ab12")])
    assert [client.index for client in roster.clients] == [0, 1]
    again = roster.joined([(Client(-1, "garden", 3e6, 5), ""), (Client(-1, "kitchen", 4e6, 31, (1,)), "cd34")])
    assert [(client.name, client.index) for client in again.clients] == [("kitchen", 0), ("hall", 1), ("garden", 2)]
    assert again.clients[0].budget_macs == 4e6
    assert again.keys == {"hall": "ab12", "kitchen": "cd34"}
    assert again.population().names == ("kitchen", "hall", "garden")


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    roster = Roster().joined([(KITCHEN, ""), (HALL, "ab12")])
    RunFolder(tmp_path).write_clients(roster.table(lambda budget: budget > 1e6), again=True)
    assert read_roster(tmp_path / "clients.csv") == roster
    assert (tmp_path / "clients.csv").read_text().splitlines()[1] == "kitchen,2000000.0,30,0.75,0.75,1,0 4,"
    assert roster.partition().report()["largest_shard"] == 30
    assert read_roster(tmp_path / "absent.csv") == Roster()


def test_a_table_of_the_first_release_has_no_keys(tmp_path: Path) -> None:
    rows = "name,budget_macs,num_examples,target_share,realized_share,participates,held_classes\nhall,1e5,10,1,1,1,3\n"
    (tmp_path / "clients.csv").write_text(rows)
    assert read_roster(tmp_path / "clients.csv") == Roster((Client(0, "hall", 1e5, 10, (3,)),))


def test_a_damaged_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text("name,budget_macs\nkitchen,1\n")
    with pytest.raises(InvalidInput, match="is damaged"):
        read_roster(tmp_path / "clients.csv")
