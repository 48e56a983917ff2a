"""Whether a run folder's files say what they were written to say: they may be cut, edited, or somebody else's."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def misfit(content: Any, checks: Mapping[str, Check], needed: Iterable[str] = ()) -> str | None:
    """Return the first key that is missing or has another kind of value; None where all is as it should be."""
    if not isinstance(content, dict):
        return "all of it"
    missing = (key for key in needed if key not in content)
    wrong = (key for key, check in checks.items() if key in content and not check(content[key]))
    return next(missing, None) or next(wrong, None)


def misfit_summary(content: Any) -> str | None:
    """Return what is wrong with a summary."""
    return misfit(content, _SUMMARY, ("curve", "finished_rounds"))


def misfit_round(content: Any) -> str | None:
    """Return what is wrong with a line of metrics."""
    return misfit(content, _ROUND, ("round", "losses", "clients", "payload_parameters", "seconds"))


def misfit_released(content: Any) -> str | None:
    """Return what is wrong with a line of privacy that was spent: who was asked, or the chance of being drawn."""
    spent = "sampling_rate" if isinstance(content, dict) and "sampling_rate" in content else "clients"
    return misfit(content, {"round": _is_count, "clients": _is_counts, "sampling_rate": _is_share}, ("round", spent))


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (whole and abs(value) < 1 << 63)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value <= 1


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _has(checks: Mapping[str, Check], *needed: str) -> Check:
    return lambda value: misfit(value, checks, needed) is None


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_point, value))


def _is_point(value: Any) -> bool:
    known = isinstance(value, dict) and ("value" in value or "accuracy" in value)
    return known and misfit(value, _POINT, ("name", "macs", "parameters")) is None


def _are_sizes(value: Any) -> bool:
    checks = {"name": _is_text, "macs": _is_count, "value": _is_number}
    return isinstance(value, list) and all(map(_has(checks, *checks), value))


def _are_refusals(value: Any) -> bool:
    return isinstance(value, list) and all(map(_has({"client": _is_text}, "client"), value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_fairness(value: Any) -> bool:
    deciles = value.get("deciles") if isinstance(value, dict) else None
    checks = {key: _is_number_or_none for key in ("score", "decile")}
    return isinstance(deciles, list) and all(map(_has(checks, *checks), deciles))


def _are_test_sets(value: Any) -> bool:
    return isinstance(value, dict) and all(_has({"curve": _is_curve}, "curve")(one) for one in value.values())


_POINT: Mapping[str, Check] = {
    "name": _is_text,
    "macs": _is_count,
    "parameters": _is_count,
    "accuracy": _is_number,
    "value": _is_number,
    "figures": _is_numbers,
    "standard_error": _is_number_or_none,
    "price": _is_number_or_none,
    "examples": lambda value: _is_count(value) and value > 0,
}
_BYTES = ("bytes_down", "bytes_up")
_TRAFFIC = ("supernet_parameters", "mean_payload_parameters", "reduction", "parameters_both_ways", *_BYTES)
_SUMMARY: Mapping[str, Check] = {
    **dict.fromkeys(("recipe", "method", "data", "curve_from"), _is_text),
    **dict.fromkeys(("finished_rounds", "best_round", "clients", "participating_clients"), _is_count),
    **dict.fromkeys(("validation_score", "training_seconds", "unserved_value"), _is_number),
    **dict.fromkeys(("population_score", "population_score_best", "served_share"), _is_number),
    **dict.fromkeys(("curve", "validation_curve"), _is_curve),
    "metric": _has(dict.fromkeys(("name", "label", "unit"), _is_text), "name", "more_is_better", "unit"),
    "test_sets": _are_test_sets,
    "traffic": _has(dict.fromkeys(_TRAFFIC, _is_number)),
    "partition": _has({}),
    "privacy": _has({}),
    "fairness": _is_fairness,
    "clock_seconds": _is_number,
    "ages": _has({"mean": _is_number, "oldest": _is_count}, "mean", "oldest"),
    "refused_replies": _has({"count": _is_count, "by_client": _is_numbers}),
}
_ROUND: Mapping[str, Check] = {
    "round": _is_count,
    "learning_rate": _is_number,
    "clients": _is_counts,
    "steps": _is_number,
    **dict.fromkeys(("payload_parameters", *_BYTES), _is_count),
    "answered": _is_counts,
    "refused": _are_refusals,
    "failed": _are_texts,
    "answer_seconds": _is_numbers,
    "losses": _is_numbers,
    "validation_score": _is_number_or_none,
    "validation_sizes": _are_sizes,
    "seconds": _is_number,
    "clock_seconds": _is_number,
    "ages": _is_counts,
    "returned_parameters": _is_count,
}
