"""The commands for what leaves the building: extract, export, verify, latency."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedfeast.errors import InvalidInput

RunArgument = Annotated[Path, typer.Argument(help="A run's folder.")]
MacsOption = Annotated[float | None, typer.Option(help="The device's budget in MACs per example.")]
ParamsOption = Annotated[float | None, typer.Option(help="The most parameters the device holds.")]
LatencyOption = Annotated[
    float | None, typer.Option(help="The most milliseconds of one inference, measured here with onnxruntime.")
]
SearchOption = Annotated[bool, typer.Option("--search", help="Find a new network for this budget.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def add_serving_commands(app: typer.Typer) -> None:
    """Give the command line its commands about trained networks."""
    for command in (extract, export, verify, latency):
        app.command()(command)


def extract(
    folder: RunArgument,
    max_macs: MacsOption = None,
    max_params: ParamsOption = None,
    max_latency: LatencyOption = None,
    search: SearchOption = False,
    out: Annotated[
        Path | None, typer.Option(help="The bundle's new folder; beside the run's files by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Take the largest affordable network out of a trained run, as a folder that needs torch alone."""
    from fedfeast.runs import Run
    from fedfeast.serving.bundle import extract as extract_bundle
    from fedfeast.serving.choice import Limits

    run, console = Run.open(folder), Console(stderr=as_json)
    limits = Limits(max_macs, max_params, max_latency)
    name = "-".join(str(limits).replace("and", "").split()) + ("-searched" if search else "")
    bundle = out if out is not None else folder / "bundles" / name
    with console.status("extracting"):
        manifest = extract_bundle(run, bundle, limits, search)
    _present(manifest, "bundle", bundle, as_json)


def export(  # noqa: PLR0913 - each argument is an option of the command
    folder: RunArgument,
    out: Annotated[Path, typer.Option(help="A new file (.onnx, .pt2), or a new folder for a bundle or a ladder.")],
    max_macs: MacsOption = None,
    max_params: ParamsOption = None,
    max_latency: LatencyOption = None,
    search: SearchOption = False,
    ladder: Annotated[int | None, typer.Option(help="So many networks, from the least to the largest served.")] = None,
    budgets: Annotated[str | None, typer.Option(help="A network for each budget in MACs, e.g. 25e6,1e8.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="onnx or pt2 (torch.export); may be repeated.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Quantise on the server-held examples; say what it costs.")] = (
        False
    ),
    opset: Annotated[int | None, typer.Option(help="The ONNX opset; 17 by default.")] = None,
    normalised: Annotated[
        bool, typer.Option("--normalised", help="Take normalised float32 images instead of uint8 pixels.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one network of a run, or a ladder of them, as ONNX or torch.export files that are checked against torch."""
    from fedfeast.runs import Run
    from fedfeast.serving.choice import Limits
    from fedfeast.serving.exporting import ExportOptions
    from fedfeast.serving.exporting import export as export_network
    from fedfeast.serving.onnx.session import DEFAULT_OPSET

    run = Run.open(folder)
    wanted = _formats(formats, int8, out)
    options = ExportOptions(wanted, opset if opset is not None else DEFAULT_OPSET, not normalised)
    if ladder is None and budgets is None:
        limits = Limits(max_macs, max_params, max_latency)
        with Console(stderr=as_json).status("exporting"):
            manifest = export_network(run, out, limits, options, search)
        _present(manifest, "file" if out.suffix in (".onnx", ".pt2") else "bundle", out, as_json)
        return
    single = (max_macs, max_params, max_latency, search or None)
    if any(limit is not None for limit in single) or (ladder is not None and budgets is not None):
        raise InvalidInput("--ladder, --budgets and a limit of one network exclude each other: give one of them.")
    _export_ladder(run, out, ladder if ladder is not None else _numbers("--budgets", budgets or ""), options, as_json)


def verify(
    path: Annotated[Path, typer.Argument(help="A bundle, a ladder, or an exported file.")], as_json: JsonOption = False
) -> None:
    """Check every file against its hash and predict the stored samples again."""
    from fedfeast.serving.verification import verify as verify_path

    if not path.exists():
        raise InvalidInput(f"{path} does not exist: give a bundle, a ladder or an exported file.")
    console = Console(stderr=as_json)
    with console.status("verifying"):
        results = verify_path(path)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        _say(console, _verified(result))


def latency(
    folder: RunArgument,
    threads: Annotated[int | None, typer.Option(min=1, help="Of onnxruntime; all cores by default.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Inferences of which the median counts.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Measure every served network's latency on this device and draw accuracy against it."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.presentation.pictures import draw_latency
    from fedfeast.serving.extraction import Extractor
    from fedfeast.serving.latency import measure_run
    from fedfeast.whole_files import write_json

    console, extractor = Console(stderr=as_json), Extractor(folder)
    if any(extractor.recorded_accuracy(point) is None for point in extractor.points):
        raise InvalidInput(f"{folder} has no measured curve of its best round: run fedfeast evaluate {folder}.")
    with CountedProgress(console, "measuring", len(extractor.points)) as progress:
        measured = measure_run(extractor, threads, repeats, lambda point: progress.advance(f"{point.name} MACs"))
    write_json(folder / "latency.json", measured)
    for suffix in ("png", "svg"):
        draw_latency(measured, folder / f"latency.{suffix}")
    if as_json:
        print(json.dumps({**measured, "picture": str(folder / "latency.png")}, indent=2))
        return
    table = Table(title=f"one image on {measured['device']}, {measured['threads']} threads")
    for heading in ("MACs", "parameters", "test accuracy", "median", "fastest"):
        table.add_column(heading, justify="right")
    for row in measured["points"]:
        times = (f"{row[key]:.3g} ms" for key in ("median_ms", "fastest_ms"))
        table.add_row(row["name"], f"{row['parameters']:,}", f"{100 * row['accuracy']:.2f} %", *times)
    console.print(table)
    _say(console, f"picture  {folder / 'latency.png'}")


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _formats(formats: list[str] | None, int8: bool, out: Path) -> tuple[Any, ...]:
    chosen = dict.fromkeys(formats or (["pt2"] if out.suffix == ".pt2" else ["onnx"]))
    return (*chosen, "int8") if int8 and "int8" not in chosen else tuple(chosen)


def _export_ladder(run: Any, out: Path, budgets: int | list[float], options: Any, as_json: bool) -> None:
    from fedfeast.app.progress import CountedProgress
    from fedfeast.serving.bundle import describe_bundle
    from fedfeast.serving.ladder import export_ladder

    console = Console(stderr=as_json)
    total = budgets if isinstance(budgets, int) else len(budgets)
    with CountedProgress(console, "exporting", total) as progress:
        index = export_ladder(
            run, out, budgets, options, lambda done, number, manifest: progress.advance(describe_bundle(manifest))
        )
    if as_json:
        print(json.dumps({"ladder": str(out), **index}, indent=2))
        return
    table = Table(title=f"ladder of {index['run']['name']}")
    for heading in ("folder", "MACs", "parameters", "test accuracy"):
        table.add_column(heading, justify="right")
    if "int8" in options.formats:
        table.add_column("in int8", justify="right")
    for rung in index["rungs"]:
        accuracies = [rung["test_accuracy"]]
        accuracies += [facts["test_accuracy"] for facts in rung["exports"].values() if "test_accuracy" in facts]
        shown = [f"{100 * accuracy:.2f} %" for accuracy in accuracies]
        table.add_row(rung["folder"], f"{rung['macs']:,}", f"{rung['parameters']:,}", *shown)
    console.print(table)
    _say(console, f"files    {', '.join(index['rungs'][0]['exports'])} in each folder")
    _say(console, f"ladder   {out}")


def _present(manifest: Mapping[str, Any], kind: str, path: Path, as_json: bool) -> None:
    from fedfeast.serving.bundle import UNTRAINED_WARNING, describe_bundle

    if (manifest["untrained_share"] or 0) > UNTRAINED_WARNING:
        Console(stderr=True).print(
            f"[yellow]warning:[/] {100 * manifest['untrained_share']:.1f} % of this network's weights "
            "were never trained by any client.",
            soft_wrap=True,
        )
    if as_json:
        print(json.dumps({kind: str(path), **manifest}, indent=2))
        return
    console, lines = Console(), [describe_bundle(manifest)]
    if "latency" in manifest:
        lines[0] += f", {manifest['latency']['median_ms']:.3g} ms on this device"
    lines += [_exported(name, facts) for name, facts in manifest.get("exports", {}).items()]
    for line in [*lines, f"{kind:<8} {path}"]:
        _say(console, line)


def _exported(name: str, facts: Mapping[str, Any]) -> str:
    if "accuracy_cost" in facts:
        return f"{name} (costs {100 * facts['accuracy_cost']:.2f} points)"
    return f"{name} (within {facts['largest_difference']:.0e} of torch)"


def _verified(result: Mapping[str, Any]) -> str:
    parts = [f"{result['files']} files match their hashes" if result["files"] > 1 else "the file matches its hash"]
    for name, difference in result["largest_differences"].items():
        if difference is None:
            parts.append(f"{name} was not run, since onnxruntime is not installed")
        else:
            parts.append(f"{name} predicts all {result['samples']} samples as before (within {difference:.0e})")
    if result["unlisted"]:
        parts.append(f"not in the manifest: {', '.join(result['unlisted'])}")
    return f"{result['path']}: {'; '.join(parts)}."


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} {text!r} is no list of numbers: write it like 25e6,50e6.") from None
