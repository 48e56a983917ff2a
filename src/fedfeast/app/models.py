"""The commands for what leaves the building: extract, export, verify, latency, serve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfeast.app.options import JsonOption, RunArgument, TrustOption, parse_numbers
from fedfeast.app.output import console_for, print_result, print_warning, show
from fedfeast.errors import InvalidInput
from fedfeast.machine import is_loopback

MacsOption = Annotated[float | None, typer.Option(help="The device's budget in MACs per example.")]
ParamsOption = Annotated[float | None, typer.Option(help="The most parameters the device holds.")]
LatencyOption = Annotated[
    float | None, typer.Option(help="The most milliseconds of one inference, measured here with onnxruntime.")
]
MeasuredOption = Annotated[
    Path | None, typer.Option(help="A CSV file of latencies measured elsewhere: model, device, latency_ms.")
]
DeviceOption = Annotated[str | None, typer.Option(help="Whose latency of --measured counts.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what an earlier command wrote there.")]
SearchOption = Annotated[bool, typer.Option("--search", help="Find a new network for this budget.")]
Float16Option = Annotated[
    bool, typer.Option("--float16", help="Round a bundle's weights to float16: half the bytes, measured again.")
]
DrawnSamplesOption = Annotated[
    bool, typer.Option("--drawn-samples", help="Let a bundle's samples be drawn, and no examples of the data.")
]
BestOption = Annotated[
    bool, typer.Option("--best", help="Take the affordable network that validates best, and not the largest.")
]


def extract(  # noqa: PLR0913 - each argument is an option of the command
    folder: RunArgument,
    max_macs: MacsOption = None,
    max_params: ParamsOption = None,
    max_latency: LatencyOption = None,
    measured: MeasuredOption = None,
    device: DeviceOption = None,
    search: SearchOption = False,
    best: BestOption = False,
    float16: Float16Option = False,
    drawn_samples: DrawnSamplesOption = False,
    out: Annotated[
        Path | None, typer.Option(help="The bundle's new folder; beside the run's files by default.")
    ] = None,
    force: ForceOption = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take the largest affordable network out of a trained run, as a folder that needs torch alone."""
    from fedfeast.runs import Run
    from fedfeast.serving.bundle import extract as extract_bundle
    from fedfeast.serving.choice import Limits
    from fedfeast.serving.extraction import BundleOptions

    run = Run.open(folder)
    limits = Limits(max_macs, max_params, max_latency, _measured_on(measured, device))
    name = "-".join(str(limits).replace("and", "").split()) + "-searched" * search + "-best" * best
    name += "-float16" * float16 + "-drawn-samples" * drawn_samples
    options = BundleOptions(float16=float16, drawn_samples=drawn_samples)
    bundle = out if out is not None else folder / "bundles" / name
    with console_for(as_json).status("extracting"):
        manifest = extract_bundle(run, bundle, limits, search, force, best, options)
    _present(manifest, "bundle", bundle, as_json)


def export(  # noqa: PLR0913 - each argument is an option of the command
    folder: RunArgument,
    out: Annotated[
        Path, typer.Option(help="A new file (.onnx, .pt2, .pte), or a new folder for a bundle or a ladder.")
    ],
    max_macs: MacsOption = None,
    max_params: ParamsOption = None,
    max_latency: LatencyOption = None,
    measured: MeasuredOption = None,
    device: DeviceOption = None,
    search: SearchOption = False,
    best: BestOption = False,
    ladder: Annotated[int | None, typer.Option(help="So many networks, from the least to the largest served.")] = None,
    budgets: Annotated[str | None, typer.Option(help="A network for each budget in MACs, e.g. 25e6,1e8.")] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="onnx, pt2 (torch.export), executorch (phones), or safetensors: the bundle alone; may be repeated.",
        ),
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Quantise on the server-held examples; say what it costs.")] = (
        False
    ),
    opset: Annotated[int | None, typer.Option(help="The ONNX opset; 17 by default, 18 for own networks.")] = None,
    normalised: Annotated[
        bool, typer.Option("--normalised", help="Take normalised float32 inputs instead of raw ones, such as pixels.")
    ] = False,
    float16: Float16Option = False,
    drawn_samples: DrawnSamplesOption = False,
    force: ForceOption = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one network of a run, or a ladder of them, as files for other runtimes, checked against torch."""
    from fedfeast.runs import Run
    from fedfeast.serving.choice import Limits
    from fedfeast.serving.exporting import SUFFIXES, ExportOptions
    from fedfeast.serving.exporting import export as export_network

    run = Run.open(folder)
    wanted = _formats(formats, int8, out)
    options = ExportOptions(wanted, opset, not normalised, float16=float16, drawn_samples=drawn_samples)
    if ladder is None and budgets is None:
        limits = Limits(max_macs, max_params, max_latency, _measured_on(measured, device))
        with console_for(as_json).status("exporting"):
            manifest = export_network(run, out, limits, options, search, force, best)
        _present(manifest, "file" if out.suffix in SUFFIXES else "bundle", out, as_json)
        return
    single = (max_macs, max_params, max_latency, measured, search or None)
    if any(limit is not None for limit in single) or (ladder is not None and budgets is not None):
        raise InvalidInput("--ladder, --budgets and a limit of one network exclude each other: give one of them.")
    numbers = ladder if ladder is not None else parse_numbers("--budgets", budgets or "")
    _export_ladder(run, out, numbers, options, {"force": force, "best": best}, as_json)


def verify(
    path: Annotated[Path, typer.Argument(help="A bundle, a ladder, or an exported file.")], as_json: JsonOption = False
) -> None:
    """Check every file against its hash and predict the stored samples again."""
    from fedfeast.serving.verification import verify as verify_path

    if not path.exists():
        raise InvalidInput(f"{path} does not exist: give a bundle, a ladder or an exported file.")
    with console_for(as_json).status("verifying"):
        results = verify_path(path)
    print_result(results, [_verified(result) for result in results], as_json)


def latency(
    folder: RunArgument,
    threads: Annotated[int | None, typer.Option(min=1, help="Of onnxruntime; all cores by default.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Inferences of which the median counts.")] = 30,
    measured: MeasuredOption = None,
    max_latency: Annotated[
        float | None, typer.Option(help="The most milliseconds of one inference: what each device of --measured gets.")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure every served network's latency on this device, or read it of others; draw how good it is against it."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.presentation.tables import latency_table
    from fedfeast.serving.extraction import Extractor
    from fedfeast.serving.latency import latency as measure_latency

    extractor, picture = Extractor(folder), folder / "latency.png"
    if measured is not None:
        _present_measured(extractor, measured, max_latency, as_json)
        return
    if max_latency is not None:
        raise InvalidInput("--max-latency chooses for the devices of --measured: give both, or use fedfeast extract.")
    with CountedProgress(console_for(as_json), "measuring", len(extractor.points)) as progress:
        times = measure_latency(extractor, threads, repeats, lambda point: progress.advance(f"{point.name} MACs"))
    content = {**times, "picture": str(picture)}
    print_result(content, [latency_table(times), f"picture  {picture}"], as_json)


def _present_measured(extractor: Any, file: Path, max_latency: float | None, as_json: bool) -> None:
    from fedfeast.presentation.pictures import draw_charts
    from fedfeast.presentation.run_charts import device_latency_charts
    from fedfeast.presentation.tables import device_latency_tables
    from fedfeast.serving.phones.measurements import join_measurements
    from fedfeast.whole_files import write_json

    if max_latency is not None and not max_latency > 0:
        raise InvalidInput(f"--max-latency {max_latency:g}: give a positive number.")
    joined = join_measurements(extractor, file, max_latency)
    folder = extractor.run.folder.path
    picture = folder / "latency-devices.png"
    write_json(folder / "latency-devices.json", joined)
    for path in (picture, picture.with_suffix(".svg")):
        draw_charts(device_latency_charts(joined), path)
    print_result({**joined, "picture": str(picture)}, [*device_latency_tables(joined), f"picture  {picture}"], as_json)


def serve(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, which may still be training, or of ladders.")],
    host: Annotated[str, typer.Option(help="The address to listen on; others than this machine need 0.0.0.0.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(envvar="FEDFEAST_TOKEN", help="Models and API want it as a bearer token.", show_envvar=True),
    ] = None,
    browser_runtime: Annotated[
        Path | None,
        typer.Option(help="A folder with onnxruntime-web's files; where browser-runtime puts them by default."),
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Serve runs and ladders: a page with their curves, models for each budget, an HTTP API."""
    from fedfeast.server.entry import serve as serve_runs

    if token is None and not is_loopback(host):
        print_warning(f"everyone who reaches {host} can fetch the models: --token keeps others out.")

    def tell(address: str) -> None:
        print(f"serving  {address}", flush=True)
        show(console_for(True), "Ctrl-C ends it.")

    serve_runs(folders, host, port, token, tell, browser_runtime)


def browser_runtime(
    out: Annotated[Path | None, typer.Option(help="Their folder; one inside Python's environment by default.")] = None,
    archive: Annotated[
        Path | None, typer.Option(help="What npm pack wrote on another machine; fetched with npm by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch onnxruntime-web, with which the page of serve runs models in the visitor's browser."""
    from fedfeast.server.browser.runtime import PACKAGE, fetch_runtime

    with console_for(as_json).status(f"fetching {PACKAGE}"):
        folder = fetch_runtime(out, archive)
    print_result({"package": PACKAGE, "folder": str(folder)}, [f"{PACKAGE} is in {folder}"], as_json)


def _measured_on(measured: Path | None, device: str | None) -> Any:
    from fedfeast.serving.choice import MeasuredOn

    if measured is None and device is not None:
        raise InvalidInput(f"--device {device} is one of a file's: give that file as --measured.")
    return None if measured is None else MeasuredOn(measured, device)


def _formats(formats: list[str] | None, int8: bool, out: Path) -> tuple[Any, ...]:
    chosen = dict.fromkeys(formats or [{".pt2": "pt2", ".pte": "executorch"}.get(out.suffix, "onnx")])
    return (*chosen, "int8") if int8 and "int8" not in chosen else tuple(chosen)


def _export_ladder(
    run: Any, out: Path, budgets: int | list[float], options: Any, flags: Mapping[str, bool], as_json: bool
) -> None:
    from fedfeast.app.progress import CountedProgress
    from fedfeast.presentation.tables import ladder_table
    from fedfeast.serving.bundle import describe_bundle
    from fedfeast.serving.ladder import export_ladder

    total = budgets if isinstance(budgets, int) else len(budgets)
    with CountedProgress(console_for(as_json), "exporting", total) as progress:

        def tell(done: int, number: int, manifest: dict[str, Any]) -> None:
            progress.advance(describe_bundle(manifest))

        index = export_ladder(run, out, budgets, options, tell, **flags)
    files = ", ".join(index["rungs"][0]["exports"] or ["weights.safetensors"])
    lines = [f"files    {files} in each folder", f"ladder   {out}"]
    beaten = [rung["folder"] for rung in index["rungs"] if "better" in rung]
    if beaten:
        lines.insert(0, f"better   smaller networks validate better than {', '.join(beaten)}: --best leaves these out")
    print_result({"ladder": str(out), **index}, [ladder_table(index), *lines], as_json)


def _present(manifest: Mapping[str, Any], kind: str, path: Path, as_json: bool) -> None:
    from fedfeast.serving.bundle import UNTRAINED_WARNING, describe_bundle
    from fedfeast.serving.manifest import better_in_words

    if (manifest["untrained_share"] or 0) > UNTRAINED_WARNING:
        untrained = f"{100 * manifest['untrained_share']:.1f} %"
        print_warning(f"{untrained} of this network's weights were never trained by any client.")
    served = describe_bundle(manifest)
    if "latency" in manifest:
        elsewhere = "measured_elsewhere" in manifest["latency"]
        device = manifest["latency"]["device"] if elsewhere else "this device"
        served += f", {manifest['latency']['median_ms']:.3g} ms on {device}"
    exported = [_exported(name, facts) for name, facts in manifest.get("exports", {}).items()]
    if "weights" in manifest:
        moved = f"outputs of the samples moved by at most {manifest['rounding_difference']:.0e}"
        exported.insert(0, f"rounded  to {manifest['weights']}: {moved}")
    words = better_in_words(manifest)
    better = [] if words is None else [f"better   {words}: --best takes it"]
    print_result({kind: str(path), **manifest}, [served, *exported, *better, f"{kind:<8} {path}"], as_json)


def _exported(name: str, facts: Mapping[str, Any]) -> str:
    if "metric_cost" in facts:
        return f"{name} (costs {facts['metric_cost']:.3g})"
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
        parts.append(f"not in the manifest: {', '.join(map(_printable, result['unlisted']))}")
    return f"{_printable(result['path'])}: {'; '.join(parts)}."


def _printable(name: str) -> str:
    """Return a file's name without what would steer a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)
