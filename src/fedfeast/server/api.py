"""The server's application: its routes over a collection of runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from fedfeast.errors import InvalidInput, without_places
from fedfeast.evaluation.fairness import Fairness
from fedfeast.server.answers import (
    Choice,
    ClassScore,
    FairnessTable,
    Fleet,
    Health,
    History,
    NoVariant,
    Prediction,
    Problem,
    RunState,
    Variant,
    Variants,
    describe_run,
)
from fedfeast.server.browser.routes import add_runtime
from fedfeast.server.browser.runtime import BrowserRuntime
from fedfeast.server.collection import Collection, Shown
from fedfeast.server.counters import CONTENT_TYPE, Counters
from fedfeast.server.guard import Guard
from fedfeast.server.model_files import send_model
from fedfeast.server.offer import DamagedBundle, Kind, NothingFits, Offer
from fedfeast.server.page_files import add_page
from fedfeast.server.predictions import Predictor, read_example
from fedfeast.serving.bundle_cache import GoneRun
from fedfeast.serving.choice import Limits
from fedfeast.version import VERSION
from fedfeast.whole_files import FullDisk

Result = TypeVar("Result")
RunQuery = Annotated[str | None, Query(description="A run by its name; the first one without it.", max_length=255)]
Budget = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]
Id = Annotated[str, Path(pattern=r"^[0-9]{1,20}-[0-9a-f]{8}$", description="A variant's id, from /api/variants.")]
PROBLEMS: dict[int, str] = {
    400: "The request makes no sense.",
    401: "The token is missing or wrong.",
    404: "There is no such run or variant.",
    408: "The body took too long.",
    409: "The kept bundle is damaged, the network cannot be built, or no variant is validated yet.",
    410: "The run's folder is gone.",
    413: "The body is too large.",
    416: "The range lies outside the file.",
    421: "The Host header names another server.",
    422: "A value is out of range.",
    507: "The server's disk is full.",
}
IMAGE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
# Threads that build and measure; waiting for them keeps nobody else from an answer.
WORKERS = 4
# Choice: a decoded image may take some times the memory of its body, and bodies that wait take theirs.
DECODERS, MOST_WAITING_BODIES = 2, 64


def build_app(
    collection: Collection,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
    runtime: BrowserRuntime | None = None,
) -> FastAPI:
    """Return the application; it watches its runs while it is up, and answers to the given hosts alone if any are.

    With a runtime the page runs models in the visitor's browser.
    """
    counters = Counters(collection.runs)

    @asynccontextmanager
    async def watch(app: FastAPI) -> AsyncIterator[None]:
        with collection:
            yield

    app = FastAPI(
        title="fedfeast",
        summary="The networks of a federated run, each device the largest it affords.",
        version=VERSION,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere; ours is at /docs
        redoc_url=None,
        lifespan=watch,
    )
    app.add_middleware(Guard, counters=counters, token=token, hosts=hosts)
    app.add_exception_handler(RequestValidationError, _say_what_is_wrong)
    app.add_exception_handler(NothingFits, _say_the_least)
    app.add_exception_handler(DamagedBundle, _say_conflict)
    app.add_exception_handler(GoneRun, _say_gone)
    app.add_exception_handler(FullDisk, _say_full)
    _add_runs(app, collection)
    _add_models(app, collection, shared=token is None)
    _add_operation(app, counters, runtime.version if runtime is not None else None)
    add_page(app)
    if runtime is not None:
        add_runtime(app, runtime)
    return app


def _add_runs(app: FastAPI, collection: Collection) -> None:
    """Add what tells of runs; every answer is what was seen last."""

    @app.get("/api/run", tags=["runs"], responses=_problems(401, 404, 422))
    async def run(run: RunQuery = None) -> RunState:
        """Tell a run's state and progress."""
        return describe_run(_find(collection, run), list(collection.runs))

    @app.get("/api/history", tags=["runs"], responses=_problems(401, 404, 422))
    async def history(
        run: RunQuery = None,
        after: Annotated[int, Query(ge=0, le=10**9, description="Only rounds after this one.")] = 0,
    ) -> History:
        """Tell the finished rounds: losses by role, validation scores, and what each validated size came to."""
        found = _find(collection, run)
        rows = [row for row in found.seen.rows if row["round"] > after]
        return History.model_validate({"run": found.name, "rounds": rows})

    @app.get("/api/fleet", tags=["runs"], responses=_problems(401, 404, 410, 422))
    async def fleet(run: RunQuery = None) -> Fleet:
        """Tell the clients' budgets as a histogram, and how many of them any variant serves."""
        found = _find_present(collection, run)
        if found.seen.fleet is None:
            is_ladder = found.seen.state == "ladder"
            why = "is a ladder, which has no clients" if is_ladder else "has no clients yet: its training has not begun"
            raise HTTPException(404, f"{found.name} {why}.")
        return Fleet.model_validate({"run": found.name, **found.seen.fleet})

    @app.get("/api/fairness", tags=["runs"], responses=_problems(401, 404, 422))
    async def fairness(run: RunQuery = None) -> FairnessTable:
        """Tell who took part, was refused or late, and what clients get, by tenths of their budgets."""
        found = _find(collection, run)
        seen = found.seen
        measured = seen.fairness or Fairness((), seen.about.metric)  # nobody before training begins
        facts = {"metric": seen.about.metric.facts(), **measured.facts()}
        return FairnessTable.model_validate({"run": found.name, **facts})

    @app.get("/api/variants", tags=["models"], responses=_problems(401, 404, 422))
    async def variants(run: RunQuery = None) -> Variants:
        """List the networks on offer, least MACs first."""
        found = _find(collection, run)
        seen = found.seen
        return Variants.model_validate(
            {
                "run": found.name,
                "data": seen.about.data,
                "metric": seen.about.metric.facts(),
                "served_round": seen.offer.round if seen.offer is not None else None,
                "variants": seen.variants,
                "anchors": seen.about.anchors,
            }
        )


def _add_models(app: FastAPI, collection: Collection, shared: bool) -> None:
    """Add what chooses, hands out and runs networks."""
    workers, decoders = anyio.CapacityLimiter(WORKERS), anyio.CapacityLimiter(DECODERS)
    bodies, predictor = anyio.CapacityLimiter(MOST_WAITING_BODIES), Predictor()

    async def in_thread(work: Callable[[], Result], limiter: anyio.CapacityLimiter = workers) -> Result:
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    @app.get(
        "/api/choose",
        tags=["models"],
        responses={**_problems(400, 401, 409, 410, 422), 404: {"model": NoVariant | Problem}},
    )
    async def choose(
        run: RunQuery = None,
        max_macs: Budget = None,
        max_params: Budget = None,
        max_latency_ms: Budget = None,
        best: Annotated[bool, Query(description="The one that validates best, and not the largest.")] = False,
    ) -> Choice:
        """Choose the largest network within every given limit, or the best; latency is that of this machine."""
        if max_macs is None and max_params is None and max_latency_ms is None:
            raise HTTPException(400, "no limit was given: say max_macs, max_params or max_latency_ms.")
        found, limits = _find_present(collection, run), Limits(max_macs, max_params, max_latency_ms)
        if max_latency_ms is None:
            return _choose(found, limits, best)
        return await in_thread(lambda: _choose(found, limits, best))

    async def model(request: Request, name: str, kind: Kind) -> Response:
        offer = _offer_with(collection, name)
        file = offer.kept_file(name, kind)
        if file is None:
            file = await in_thread(lambda: _built(lambda: offer.file(name, kind)))
        return send_model(file, request.headers, shared)

    file_answers: dict[int | str, dict[str, Any]] = {
        200: {"description": "The file.", "content": {"application/octet-stream": {}}},
        206: {"description": "A part of the file.", "content": {"application/octet-stream": {}}},
        304: {"description": "The client has it already."},
        **_problems(400, 401, 404, 409, 410, 416, 422, 507),
    }

    @app.head("/models/{id}.onnx", include_in_schema=False)
    @app.get("/models/{id}.onnx", tags=["models"], responses=file_answers, response_class=Response)
    async def onnx(request: Request, id: Id) -> Response:
        """Hand out a network as ONNX: raw inputs such as pixels in, logits out. Answers HEAD and ranges, too."""
        return await model(request, id, "onnx")

    @app.head("/models/{id}.safetensors", include_in_schema=False)
    @app.get("/models/{id}.safetensors", tags=["models"], responses=file_answers, response_class=Response)
    async def safetensors(request: Request, id: Id) -> Response:
        """Hand out a network's weights as safetensors. Answers HEAD and ranges, too."""
        return await model(request, id, "safetensors")

    @app.post(
        "/api/predict/{id}",
        tags=["models"],
        responses=_problems(401, 404, 408, 409, 410, 413, 422, 507),
        openapi_extra=IMAGE,
    )
    async def predict(request: Request, id: Id) -> Prediction:
        """Run one network on an image file (PNG, JPEG, WebP, BMP or GIF) of exactly the run's size.

        Networks for other data take one example as nested lists of numbers in JSON.
        """
        offer = _offer_with(collection, id)
        async with bodies:
            body = await request.body()
            example = await in_thread(lambda: _readable(lambda: read_example(body, offer.data_facts)), decoders)
        seen = await in_thread(lambda: _built(lambda: predictor.predict(offer, id, example)))
        scores = [ClassScore(name=name, probability=probability) for name, probability in seen.classes]
        return Prediction(id=id, classes=scores, numbers=seen.numbers, milliseconds=seen.milliseconds)


def _add_operation(app: FastAPI, counters: Counters, onnxruntime_web: str | None) -> None:
    """Add what those who run the server look at."""

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> Health:
        """Say that the server is up."""
        return Health(version=VERSION, onnxruntime_web=onnxruntime_web)

    @app.get(
        "/metrics",
        tags=["operation"],
        response_class=Response,
        responses={200: {"description": "Prometheus's text format.", "content": {"text/plain": {}}}, **_problems(401)},
    )
    async def metrics() -> Response:
        """Tell what was counted, for Prometheus."""
        return Response(counters.text(), media_type=CONTENT_TYPE)


def _find(collection: Collection, name: str | None) -> Shown:
    found = collection.find(name)
    if found is None:
        raise HTTPException(404, f"there is no run {_short(name or '')}: this server has {', '.join(collection.runs)}.")
    return found


def _find_present(collection: Collection, name: str | None) -> Shown:
    """Return a run whose folder is there at this very moment."""
    found = _find(collection, name)
    if found.is_gone:
        raise HTTPException(410, f"{found.name} is gone: its folder was deleted or moved away.")
    return found


def _choose(run: Shown, limits: Limits, best: bool) -> Choice:
    """Return the largest variant within the limits beside the better one that is smaller, or that one itself."""
    seen = run.seen  # which may be another one before a latency is measured
    offer, merits = seen.offer, seen.merits()
    if offer is None:
        raise HTTPException(404, f"{run.name} has no model yet: {seen.note}")
    if best and not merits:
        raise HTTPException(
            409, f"no variant of {run.name} has a validation figure yet: they are measured when training ends."
        )
    chosen = offer.choose(limits, best_by=merits if best else None)
    better = None if best else offer.better(chosen, limits, merits)
    variants = {}
    for one in seen.variants:
        if one["id"] in (chosen, better):
            by_latency = {} if limits.max_latency_ms is None else {"latency_ms": offer.latency_ms(one["id"])}
            variants[one["id"]] = Variant.model_validate({**one, **by_latency})
    return Choice(
        run=run.name,
        chosen_by="best" if best else "largest",
        variant=variants[chosen],
        better=None if better is None else variants[better],
    )


def _offer_with(collection: Collection, name: str) -> Offer:
    offer = collection.offer_of(name)
    if offer is None and collection.has_lost(name):
        raise HTTPException(410, f"the variant {_short(name)} is gone: its run's folder was deleted or moved away.")
    if offer is None:
        raise HTTPException(404, f"there is no variant {_short(name)}: /api/variants lists those on offer.")
    return offer


def _built(work: Callable[[], Result]) -> Result:
    """Do what may fail because a network cannot be built, e.g. where its data are gone."""
    try:
        return work()
    except (DamagedBundle, GoneRun, FullDisk):
        raise
    except InvalidInput as error:
        raise HTTPException(409, without_places(str(error))) from error


def _readable(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except InvalidInput as error:
        raise HTTPException(422, str(error)) from error


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem, "description": PROBLEMS[code]} for code in codes}


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


async def _say_what_is_wrong(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name, given = first["loc"][-1], first.get("input")
    return JSONResponse({"detail": f"{name} = {_short(str(given))}: {first['msg']}."}, 422)


async def _say_the_least(request: Request, error: Exception) -> Response:
    assert isinstance(error, NothingFits)
    return JSONResponse(NoVariant.of(error).model_dump(), 404)


async def _say_conflict(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": without_places(str(error))}, 409)


async def _say_gone(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 410)


async def _say_full(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": without_places(str(error))}, 507)
