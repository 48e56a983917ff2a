from collections.abc import Sequence

from fedfeast.presentation.chart import ACCURACY, Axis, Chart, Note, Point, Series
from fedfeast.presentation.note_places import PlacedNote, place_notes

TIME = Axis("latency (ms)", "milliseconds", "log")
SIZE = (650, 320)


def chart_of(places: Sequence[tuple[float, float]]) -> Chart:
    points = tuple(Point(x, y, name=f"{place}00.5k") for place, (x, y) in enumerate(places, start=1))
    return Chart(TIME, ACCURACY, (Series("", points),), notes=tuple(Note(one.x, one.y, one.name) for one in points))


def words(placed: Sequence[PlacedNote]) -> set[str]:
    return {one.note.text for one in placed}


def test_a_word_alone_stands_below_its_point_at_the_right() -> None:
    (placed,) = place_notes(chart_of([(1.0, 50.0)]), *SIZE)
    assert (placed.side, placed.right > 0, placed.below > 0) == ("left", True, True)


def test_neighbours_give_way_to_each_other() -> None:
    close = [(1.0 + 0.02 * place, 97.0 + 0.1 * place) for place in range(4)]
    placed = place_notes(chart_of([*close, (3.0, 98.0)]), *SIZE)
    assert len(placed) == 5
    assert len({(one.side, one.below > 0) for one in placed}) > 1


def test_what_has_no_room_is_left_out_and_the_outermost_never() -> None:
    crowd = [(1.0 + 0.0005 * place, 97.0 + 0.001 * place) for place in range(30)]
    placed = place_notes(chart_of([*crowd, (1.5, 98.0)]), *SIZE)
    assert len(placed) < 31
    assert {"100.5k", "3100.5k"} <= words(placed)


def test_a_word_at_the_edge_turns_inwards() -> None:
    points = (Point(1.0, 10.0), Point(10.0, 60.0))
    axis = Axis("latency (ms)", "milliseconds", "log", least=1.0, greatest=10.0)
    chart = Chart(axis, ACCURACY, (Series("", points),), notes=(Note(10.0, 60.0, "1.246M"),))
    (placed,) = place_notes(chart, *SIZE)
    assert placed.side == "right"
