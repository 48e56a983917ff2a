"""Members of a built network as a cache: rising costs, the best of each, a file that is read back."""

from pathlib import Path

import pytest
from own_networks import built_cnn, cnn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import BuiltNetwork, Member
from fedfeast.randomness import named_generator
from fedfeast.variants import Variant, choose_members, read_cache, write_cache
from fedfeast.variants.members import MOST_CANDIDATES, draw_members, pareto_front


def test_the_cache_rises_from_the_least_to_the_whole_network() -> None:
    network = built_cnn()
    cache = choose_members(network, 5, named_generator(0))
    macs = [one.macs for one in cache]
    assert macs == sorted(set(macs))
    assert 2 < len(cache) <= 5
    assert (cache[0].architecture, cache[-1].architecture) == (network.smallest, network.largest)
    assert [one.parameters for one in cache] == sorted(one.parameters for one in cache)


def test_the_front_is_what_nothing_cheaper_equals() -> None:
    network = built_cnn()
    variants = [Variant.of(network, one) for one in cnn.members()]
    front = pareto_front(variants)
    for one in variants:
        better = [other for other in variants if other.macs <= one.macs and other.parameters >= one.parameters]
        assert (one in front) == (better == [one])


def test_a_score_of_one_s_own_decides() -> None:
    network = built_cnn()

    def shallow(member: Member) -> float:
        return member.values["width"] - 10 * member.values["depth"]

    cache = choose_members(network, 5, named_generator(0), shallow)
    assert [one.architecture.values["depth"] for one in cache] == [1, 1]
    assert [one.architecture.values["width"] for one in cache] == [2, 4]


def test_targets_of_one_s_own() -> None:
    network = built_cnn()
    least, greatest = network.macs(network.smallest), network.macs(network.largest)
    cache = choose_members(network, 5, named_generator(0), targets_macs=[least, greatest])
    assert [one.macs for one in cache] == [least, greatest]
    with pytest.raises(InvalidInput, match=f"below the least network of cnn, which has {least}"):
        choose_members(network, 5, named_generator(0), targets_macs=[least - 1])
    with pytest.raises(InvalidInput, match="must be at least 1"):
        choose_members(network, 0, named_generator(0))


def test_a_large_family_is_sampled_with_both_ends() -> None:
    builder = cnn.with_choices(width=range(2, 12), hidden=range(3, 13), depth=range(1, 4))
    network = BuiltNetwork(builder, {"classes": 3, "channels": 1}, (1, 8, 8))
    members = draw_members(network, named_generator(0))
    assert len(members) == len(set(members)) == MOST_CANDIDATES
    assert members[:2] == [network.smallest, network.largest]
    assert members == draw_members(network, named_generator(0))


def test_write_then_read(tmp_path: Path) -> None:
    network = built_cnn()
    cache, path = choose_members(network, 4, named_generator(0)), tmp_path / "cache.csv"
    write_cache(cache, network, path)
    assert path.read_text().splitlines()[0] == "macs,params,width,hidden,depth"
    assert read_cache(str(path), network) == cache
    path.write_text(path.read_text().replace(str(cache[0].macs), "7"))
    with pytest.raises(InvalidInput, match="records 7 MACs"):
        read_cache(str(path), network)
    path.write_text("macs,params,width\n1,2,3\n")
    with pytest.raises(InvalidInput, match="lacks the column hidden: it needs macs, params, width, hidden, depth"):
        read_cache(str(path), network)
    path.write_text("macs,params,width,hidden,depth\n1,2,3,3,1\n")
    with pytest.raises(InvalidInput, match="is damaged"):
        read_cache(str(path), network)
