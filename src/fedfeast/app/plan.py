"""The commands before training: plan, measure, methods, check-method, search."""

from pathlib import Path
from typing import Annotated

import typer

from fedfeast.app.options import JsonOption, RecipeArgument, SettingsOption, TrustOption, parse_numbers
from fedfeast.app.output import console_for, print_result, show
from fedfeast.errors import InvalidInput


def plan(
    recipe: RecipeArgument,
    gamma: Annotated[
        str | None, typer.Option(help="One or several values, e.g. 0,0.5,1: their plans are set side by side.")
    ] = None,
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a federation will send, compute and cover, before it starts and without its data."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.planning import plan_recipe
    from fedfeast.planning.outline import outline
    from fedfeast.planning.timing import passes_to_time, time_passes
    from fedfeast.presentation.plan_tables import describe_plans
    from fedfeast.recipes import load_recipe
    from fedfeast.units import format_macs

    words = settings or []
    for word in words:
        if word.startswith("population.gamma=["):  # the same as --gamma
            gamma = word.partition("=")[2].strip("[]")
    words = [word for word in words if not word.startswith("population.gamma=[")]
    gammas = [] if gamma is None else [[f"population.gamma={one.strip()}"] for one in gamma.split(",")]
    recipes = [load_recipe(recipe, [*words, *one]) for one in gammas or [[]]]
    built = outline(recipes[0])
    with CountedProgress(console_for(as_json), "timing passes", len(passes_to_time(built))) as progress:
        times = time_passes(built, lambda macs: progress.advance(f"{format_macs(macs)} MACs"))
    with console_for(as_json).status("planning"):
        plans = [plan_recipe(one, times=times) for one in recipes]
    print_result(plans[0] if len(plans) == 1 else {"plans": plans}, describe_plans(plans), as_json)


def measure(
    recipe: RecipeArgument = "digits",
    target_ms: Annotated[
        float | None, typer.Option("--target-ms", help="A latency per image; the budget that keeps it is suggested.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads to time with; every usable core without it (in eager torch the recipe's, or torch's)."
        ),
    ] = None,
    variants: Annotated[int, typer.Option(help="How many sizes to time, from the smallest to the largest.")] = 5,
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what this device can afford: latency of a few sizes, MACs a second, memory, a budget. Needs no data."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.presentation.plan_tables import describe_device, timings_table
    from fedfeast.serving.measuring import TURNS, Timing, measure_device
    from fedfeast.units import format_macs

    timed: dict[str, Timing] = {}
    try:
        with CountedProgress(console_for(as_json), "measuring", TURNS * variants) as progress:

            def tell(timing: Timing, total: int) -> None:
                timed[timing.name] = timing
                progress.advance(f"{format_macs(timing.macs)} MACs in {timing.milliseconds:.3g} ms", total)

            measured = measure_device(recipe, settings or [], target_ms, threads, variants, tell)
    except BaseException:  # Ctrl-C too: what was measured until then took its time
        if timed:
            rows = [timing.facts() for timing in timed.values()]
            show(console_for(as_json), timings_table(rows, "measured before it stopped"))
        raise
    print_result(measured, describe_device(measured), as_json)
    if "refused" in measured:
        raise InvalidInput(measured["refused"])


def methods(
    recipe: Annotated[
        str, typer.Option(help="The recipe whose networks the operating points are of.")
    ] = "cifar100-paper",
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the methods: what each sends, computes and serves with a recipe, when to choose it, and its options."""
    from fedfeast.planning.method_costs import list_methods
    from fedfeast.presentation.plan_tables import describe_methods

    with console_for(as_json).status("planning every method"):
        listed = list_methods(recipe, settings or [])
    print_result(listed, describe_methods(listed, recipe), as_json)


def check_method(
    method: Annotated[str, typer.Argument(help="A method of your own, file.py:Class or module:Class; its code runs.")],
    recipe: Annotated[
        str, typer.Option(help="The recipe whose networks, clients and data it is tried with.")
    ] = "digits",
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Try a method of your own by every rule that methods keep, and say which it violates (exit code 1)."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.presentation.plan_tables import describe_check
    from fedfeast.runs.contract.checking import RULES
    from fedfeast.runs.contract.checking import check_method as check

    with CountedProgress(console_for(as_json), "checking", len(RULES)) as progress:
        report = check(method, recipe, settings or [], lambda rule: progress.advance(rule.name))
    print_result(report.to_json(), describe_check(report.to_json()), as_json)
    if not report.passed:
        raise typer.Exit(1)


def search(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the cache, RECIPE-cache.csv by default; a picture goes beside it."),
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="MAC targets, e.g. 25e6,50e6; without them the recipe's [variants].")
    ] = None,
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a cache of variants for a recipe's space: the fittest network within every MAC target."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.planning.searching import search_recipe
    from fedfeast.presentation.pictures import draw_search
    from fedfeast.recipes import load_recipe

    loaded = load_recipe(recipe, settings or [])
    file = out if out is not None else Path(f"{loaded.name}-cache.csv")
    wanted = parse_numbers("--targets", targets) if targets is not None else None
    number = loaded.variants.num_targets if wanted is None else len(wanted)
    with CountedProgress(console_for(as_json), "searching", number) as progress:
        result = search_recipe(loaded, wanted, lambda found: progress.advance(f"{found.macs:,} MACs"))
    result.write(file)
    draw_search(result.distinct, file.with_suffix(".png"))
    facts = {
        "cache": str(file),
        "picture": str(file.with_suffix(".png")),
        "variants": len(result.distinct),
        "macs_min": result.distinct[0].macs,
        "macs_max": result.distinct[-1].macs,
        "repeated_targets": [result.found[position].target_macs for position in result.repeated],
        "dominated_targets": [result.found[position].target_macs for position in result.dominated],
    }
    print_result(facts, [f"{name.replace('_', ' '):<18} {value}" for name, value in facts.items()], as_json)
