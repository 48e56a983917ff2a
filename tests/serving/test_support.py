import pytest

from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.serving.support import TrainedSupport, trained_architectures


def test_what_no_client_affords_is_never_trained() -> None:
    built = outline(load_recipe("digits", {"method.name": "heterofl", "population.greatest_macs": 400e3}))
    narrow, half, whole = (point.architecture for point in built.method.operating_points()[2:])
    assert whole not in trained_architectures(built)
    support, network = TrainedSupport(built), built.method.network
    assert support.untrained_share(narrow) == 0
    trained = network.parameters(narrow)
    for level in (half, whole):
        assert support.untrained_share(level) == pytest.approx(1 - trained / network.parameters(level))


@pytest.mark.parametrize("method", ["fedrolex", "fiarse", "superfednas"])
def test_where_parts_move_from_round_to_round_it_cannot_be_told(method: str) -> None:
    built = outline(load_recipe("digits", {"method.name": method}))
    assert TrainedSupport(built).untrained_share(built.method.operating_points()[-1].architecture) is None
