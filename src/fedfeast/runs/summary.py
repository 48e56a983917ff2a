"""The numbers of a run's summary, from its rounds and its best one's curve."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve
from fedfeast.federation import sampling_rate, spent_centrally, spent_epsilon
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import plan_traffic
from fedfeast.population.natural import measure_correlation
from fedfeast.recipes.building import build_central_privacy, build_privacy, build_server
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.splitting import NaturalSplit
from fedfeast.runs.assembly import Federation
from fedfeast.runs.checkpoint import Best, TrainingState
from fedfeast.runs.folder import RunFolder


def run_numbers(
    federation: Federation,
    folder: RunFolder,
    state: TrainingState,
    rows: Sequence[Mapping[str, Any]],
    best: Best,
    curve: Curve,
) -> dict[str, Any]:
    """Return what a run came to, as its summary says it: scores, traffic, time, what was refused and what was spent."""
    recipe, budgets = federation.recipe, federation.population.budgets_macs
    full = federation.method.network.layout.num_parameters
    sent = sum(row["payload_parameters"] for row in rows)
    returned = sum(row.get("returned_parameters", row["payload_parameters"]) for row in rows)
    answers = sum(len(row["clients"]) for row in rows)
    return {
        "recipe": recipe.name,
        "method": recipe.method_name,
        "data": recipe.data.name,
        "finished_rounds": state.finished_rounds,
        "best_round": best.finished_rounds,
        "validation_score": best.score,
        **({"served_vector": best.vector} if build_server(recipe, federation.method).average else {}),
        **curve.population_scores(budgets),
        "served_share": curve.served_share(budgets),
        "clients": len(budgets),
        "participating_clients": len(federation.participants),
        "traffic": {
            "supernet_parameters": full,
            "mean_payload_parameters": sent / max(answers, 1),  # nobody may have been drawn
            "reduction": full * answers / max(sent, 1),
            "parameters_both_ways": sent + returned,
            **_count_bytes(rows),
            "planned": plan_traffic(outline(recipe)),
        },
        "partition": federation.partition.report(),
        **({} if federation.natural is None else _describe_clients(federation, federation.natural)),
        "training_seconds": round(sum(row["seconds"] for row in rows), 2),
        **_describe_clock(rows),
        **_summarise_policy(recipe, rows),
        **_summarise_privacy(federation, folder, rows),
    }


def finished_rows(folder: RunFolder, state: TrainingState) -> list[dict[str, Any]]:
    """Return a run's rounds up to a state, all of them; a killed one may have rows beyond, which are cut later."""
    rows = [row for row in folder.metrics() if row["round"] <= state.finished_rounds]
    expected = range(1, state.finished_rounds + 1)
    if [row["round"] for row in rows] != list(expected):
        missing = sorted(set(expected) - {row["round"] for row in rows})
        wrong = f"lacks round {missing[0]}" if missing else "has rounds twice or in another order"
        raise InvalidInput(
            f"{folder.path / 'metrics.jsonl'} {wrong}, of the {state.finished_rounds} that its checkpoint has: restore "
            "it, or start again in another --out folder."
        )
    folder.check_released()
    return rows


def _summarise_privacy(federation: Federation, folder: RunFolder, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what privacy was spent; nothing where there is none."""
    local, central = build_privacy(federation.recipe), build_central_privacy(federation.recipe)
    if local is not None:
        # A refused reply was sent all the same. Simulated noise is the same in a repeated round, a fleet's is new.
        asked = folder.released() or Counter(client for row in rows for client in row["clients"])
        most = max(asked.values(), default=0)
        return {
            "privacy": {
                "epsilon": spent_epsilon(local, most),
                "delta": local.delta,
                "participations": most,
                "median_epsilon": spent_epsilon(local, median_low(asked.values())) if asked else 0.0,
                "clip_norm": local.clip_norm,
                "noise_multiplier": local.noise_multiplier,
                "unit": "one client's whole data, each update on its own; no amplification by sampling is claimed",
            }
        }
    if central is not None:
        rate = sampling_rate(len(federation.participants), federation.recipe.training.clients_per_round)
        releases = folder.releases(rate, len(rows))
        return {
            "privacy": {
                "mechanism": "central",
                "epsilon": spent_centrally(central, releases),
                "delta": central.delta,
                "rounds": sum(releases.values()),
                "sampling_rate": max(releases, default=rate),
                "clip_norm": central.clip_norm,
                "noise_multiplier": central.noise_multiplier,
                "unit": "one client's whole data against none of it, in the weights of all rounds together; the "
                "server is trusted, and who takes part in a round must stay unknown",
            }
        }
    return {}


def _count_bytes(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the bytes of all messages of training by direction, where every round counted them."""
    ways = ("bytes_down", "bytes_up")
    return {way: sum(row[way] for row in rows) for way in ways if all(way in row for row in rows)}


def _describe_clients(federation: Federation, natural: NaturalSplit) -> dict[str, Any]:
    """Return who the data's clients are, and how their budgets go with their data."""
    measured = measure_correlation(federation.population.budgets_macs, natural.sizes)
    return {"division": natural.division.report(), "budgets_and_data": measured}


def _describe_clock(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how old merged answers were and what the simulated clock says, where there is anything to say."""
    told: dict[str, Any] = {}
    ages = [age for row in rows for age in row.get("ages", ())]
    if ages:
        told["ages"] = {"answers": len(ages), "mean": sum(ages) / len(ages), "oldest": max(ages)}
    if "clock_seconds" in rows[-1]:
        told["clock_seconds"] = rows[-1]["clock_seconds"]
    return told


def _summarise_policy(recipe: Recipe, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was refused and who lied; nothing where all of it is off."""
    numbers: dict[str, Any] = {}
    refused = [refusal for row in rows for refusal in row.get("refused", [])]
    if refused or recipe.aggregation.refuse_multiple is not None:
        by_client = Counter(refusal["client"] for refusal in refused)
        numbers["refused_replies"] = {"count": len(refused), "by_client": dict(by_client.most_common())}
    if recipe.adversary.share > 0:
        numbers["adversary_share"] = recipe.adversary.share
    return numbers
