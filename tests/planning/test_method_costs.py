"""Methods side by side, by their plans."""

from tiny import TINY

import fedfeast
from fedfeast.methods import METHODS


def test_every_method_says_what_it_costs_and_when_to_choose_it() -> None:
    listed = {one["name"]: one for one in fedfeast.list_methods("digits", TINY)}
    assert listed.keys() == METHODS.keys()
    assert all(one["suits"].endswith(".") for name, one in listed.items() if METHODS[name].suits)
    planned = fedfeast.plan("digits", TINY)
    costs = listed["feast"]["costs"]
    assert costs["mean_payload_parameters"] == planned["traffic"]["mean_payload_parameters"]
    assert costs["training_pmacs"] == planned["compute"]["training_pmacs"]
    assert costs["served_clients"] == costs["clients"] == 40


def test_a_method_whose_networks_nobody_affords_says_so() -> None:
    listed = fedfeast.list_methods("digits", {"population.greatest_macs": 100e3, "population.least_macs": 50e3})
    by_name = {one["name"]: one for one in listed}
    assert "costs" not in by_name["feast"]
    assert "budget" in by_name["feast"]["refused"]
    assert "costs" in by_name["heterofl"], "its smallest width fits"
