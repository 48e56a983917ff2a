"""fedfeast: train one elastic network over a fleet of unequal devices, then serve each the largest model it affords."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfeast.app.pictures import draw_curves as draw_curves
    from fedfeast.errors import InvalidInput as InvalidInput
    from fedfeast.runs import Recipe as Recipe
    from fedfeast.runs import Run as Run
    from fedfeast.runs import evaluate as evaluate
    from fedfeast.runs import load_recipe as load_recipe
    from fedfeast.runs import plan_recipe as plan_recipe
    from fedfeast.runs import train as train
    from fedfeast.serving.bundle import load_bundle as load_bundle
    from fedfeast.serving.extraction import Limits as Limits
    from fedfeast.serving.extraction import extract as extract

# Resolved on first use, so that `import fedfeast` and `fedfeast --help` load no torch.
_PUBLIC = {
    "InvalidInput": "fedfeast.errors",
    "Limits": "fedfeast.serving.extraction",
    "Recipe": "fedfeast.runs",
    "Run": "fedfeast.runs",
    "draw_curves": "fedfeast.app.pictures",
    "evaluate": "fedfeast.runs",
    "extract": "fedfeast.serving.extraction",
    "load_bundle": "fedfeast.serving.bundle",
    "load_recipe": "fedfeast.runs",
    "plan_recipe": "fedfeast.runs",
    "train": "fedfeast.runs",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedfeast' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
