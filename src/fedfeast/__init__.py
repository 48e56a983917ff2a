"""fedfeast: train one elastic network over a fleet of unequal devices, then serve each the largest model it affords."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfeast.data import PrepareOptions as PrepareOptions
    from fedfeast.data import fetch_data as fetch_data
    from fedfeast.data import list_data as list_data
    from fedfeast.data import prepare_data as prepare_data
    from fedfeast.errors import InvalidInput as InvalidInput
    from fedfeast.networks.built import Builder as Builder
    from fedfeast.networks.built import CheckReport as CheckReport
    from fedfeast.networks.built import Member as Member
    from fedfeast.networks.built import check as check
    from fedfeast.networks.built import elastic as elastic
    from fedfeast.networks.shipped.adapters import with_adapters as with_adapters
    from fedfeast.own_code import trust as trust
    from fedfeast.planning import plan_recipe, search_recipe
    from fedfeast.planning.method_costs import list_methods as list_methods
    from fedfeast.presentation.pictures import draw_curves as draw_curves
    from fedfeast.presentation.report import write_report
    from fedfeast.presentation.tracking import tracked as tracked
    from fedfeast.recipes import Recipe as Recipe
    from fedfeast.recipes import load_recipe as load_recipe
    from fedfeast.recipes.recipe_list import list_recipes as list_recipes
    from fedfeast.runs import Run as Run
    from fedfeast.runs import evaluate as evaluate
    from fedfeast.runs import train as train
    from fedfeast.runs.contract import MethodReport as MethodReport
    from fedfeast.runs.contract import check_method as check_method
    from fedfeast.server.entry import serve as serve
    from fedfeast.serving.bundle import extract as extract
    from fedfeast.serving.bundle import load_bundle as load_bundle
    from fedfeast.serving.bundle_cache import BundleCache as BundleCache
    from fedfeast.serving.choice import Limits as Limits
    from fedfeast.serving.exporting import ExportOptions as ExportOptions
    from fedfeast.serving.exporting import export as export
    from fedfeast.serving.extraction import BundleOptions as BundleOptions
    from fedfeast.serving.ladder import Ladder as Ladder
    from fedfeast.serving.ladder import export_ladder as export_ladder
    from fedfeast.serving.latency import latency as latency
    from fedfeast.serving.measuring import measure_device
    from fedfeast.serving.verification import verify as verify
    from fedfeast.studies import StudyOptions as StudyOptions
    from fedfeast.studies import StudyResult as StudyResult
    from fedfeast.studies.entry import choose as choose
    from fedfeast.studies.entry import study as study

    measure, plan, report, search = measure_device, plan_recipe, write_report, search_recipe

# Resolved on first use, so that `import fedfeast` and `fedfeast --help` load no torch.
_PUBLIC = {
    "Builder": ("fedfeast.networks.built", "Builder"),
    "BundleCache": ("fedfeast.serving.bundle_cache", "BundleCache"),
    "BundleOptions": ("fedfeast.serving.extraction", "BundleOptions"),
    "CheckReport": ("fedfeast.networks.built", "CheckReport"),
    "ExportOptions": ("fedfeast.serving.exporting", "ExportOptions"),
    "ImageOptions": ("fedfeast.data", "PrepareOptions"),  # its name while all data were images
    "InvalidInput": ("fedfeast.errors", "InvalidInput"),
    "Ladder": ("fedfeast.serving.ladder", "Ladder"),
    "Limits": ("fedfeast.serving.choice", "Limits"),
    "Member": ("fedfeast.networks.built", "Member"),
    "MethodReport": ("fedfeast.runs.contract", "MethodReport"),
    "PrepareOptions": ("fedfeast.data", "PrepareOptions"),
    "Recipe": ("fedfeast.recipes", "Recipe"),
    "Run": ("fedfeast.runs", "Run"),
    "Shelf": ("fedfeast.serving.bundle_cache", "BundleCache"),  # its name in the first release
    "StudyOptions": ("fedfeast.studies", "StudyOptions"),
    "StudyResult": ("fedfeast.studies", "StudyResult"),
    "check": ("fedfeast.networks.built", "check"),
    "check_method": ("fedfeast.runs.contract", "check_method"),
    "choose": ("fedfeast.studies.entry", "choose"),
    "draw_curves": ("fedfeast.presentation.pictures", "draw_curves"),
    "elastic": ("fedfeast.networks.built", "elastic"),
    "evaluate": ("fedfeast.runs", "evaluate"),
    "export": ("fedfeast.serving.exporting", "export"),
    "export_ladder": ("fedfeast.serving.ladder", "export_ladder"),
    "extract": ("fedfeast.serving.bundle", "extract"),
    "fetch_data": ("fedfeast.data", "fetch_data"),
    "latency": ("fedfeast.serving.latency", "latency"),
    "list_data": ("fedfeast.data", "list_data"),
    "list_methods": ("fedfeast.planning.method_costs", "list_methods"),
    "list_recipes": ("fedfeast.recipes.recipe_list", "list_recipes"),
    "load_bundle": ("fedfeast.serving.bundle", "load_bundle"),
    "load_recipe": ("fedfeast.recipes", "load_recipe"),
    "measure": ("fedfeast.serving.measuring", "measure_device"),
    "plan": ("fedfeast.planning", "plan_recipe"),
    "prepare_data": ("fedfeast.data", "prepare_data"),
    "report": ("fedfeast.presentation.report", "write_report"),
    "search": ("fedfeast.planning", "search_recipe"),
    "study": ("fedfeast.studies.entry", "study"),
    "serve": ("fedfeast.server.entry", "serve"),
    "tracked": ("fedfeast.presentation.tracking", "tracked"),
    "train": ("fedfeast.runs", "train"),
    "trust": ("fedfeast.own_code", "trust"),
    "with_adapters": ("fedfeast.networks.shipped.adapters", "with_adapters"),
    "verify": ("fedfeast.serving.verification", "verify"),
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedfeast' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
