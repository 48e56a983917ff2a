from fedfeast.methods import METHODS
from fedfeast.recipes.method_list import list_methods


def test_every_method_is_described_with_its_operating_points() -> None:
    listed = {one["name"]: one for one in list_methods()}
    assert listed.keys() == METHODS.keys()
    for one in listed.values():
        assert one["summary"].endswith(".")
        assert one["paper"]
        assert one["operating_points"]
    assert len(listed["feast"]["operating_points"]) == 56
    assert [point["macs"] for point in listed["heterofl"]["operating_points"]][-1] == 555_468_800
    assert listed["scalefl"]["options"]["levels"] == [[1, 0.4], [2, 0.5], [3, 0.6], [4, 1.0]]


def test_operating_points_are_those_of_the_recipe() -> None:
    (fedavg,) = [one for one in list_methods("digits") if one["name"] == "fedavg"]
    assert [point["macs"] for point in fedavg["operating_points"]] == [128_320]
