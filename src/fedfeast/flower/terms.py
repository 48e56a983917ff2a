"""What a server tells every client before it takes part: recipe, data facts, normalisation, version, network."""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from fedfeast.data import DatasetFacts, Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.federation import Method
from fedfeast.flower.messages import MOST_TERMS_BYTES, TermsMessage, from_json
from fedfeast.networks import ElasticResNet
from fedfeast.networks.shipped import find_builder
from fedfeast.recipes.building import build_parts
from fedfeast.recipes.recipe import Recipe, parse_recipe
from fedfeast.recipes.suitability import MEMBERS, SEARCHED
from fedfeast.variants.cache import packaged_caches, write_cache
from fedfeast.version import VERSION

NAMED_FILES = ("variants.cache", "population.file")  # settings of a recipe that may name files
# Where the server's files lie and what it tells of its rounds is no client's business, and what chose the members is
# not needed where they are told. A client takes none of it from a server that tells it all the same.
SERVER_ALONE = {
    "data.folder": "none",
    "network.weights": "none",
    "variants.score": "none",
    "evaluation.sizes": "auto",
}


@dataclass(frozen=True)
class Terms:
    """All that a client needs to build the same method as the server; nothing in it is code."""

    recipe: str  # TOML
    files: Mapping[str, str]  # setting -> content of the file it names on the server
    facts: DatasetFacts
    class_names: tuple[str, ...]  # where the server's data set names them
    normalisation: Normalisation | None  # None: token ids
    version: str
    space: str
    builder_sha256: str = ""  # of the file that makes the networks, where it is not the package's ResNet

    @classmethod
    def of(
        cls, recipe: Recipe, method: Method, normalisation: Normalisation | None, class_names: tuple[str, ...]
    ) -> "Terms":
        """Return the terms of a recipe: of code that it names only names and a hash."""
        text = parse_recipe(recipe.to_toml(), recipe.name, SERVER_ALONE, recipe.data.facts).to_toml()
        settings = recipe.settings()
        named = {key: Path(str(settings[key])) for key in NAMED_FILES if key in settings}
        files = {key: path.read_text() for key, path in named.items() if path.is_file()}
        if recipe.variants.cache in (MEMBERS, SEARCHED):
            files["variants.cache"] = _chosen_members(recipe)
        builder = recipe.network.builder
        return cls(
            recipe=text,
            files=files,
            facts=recipe.data.facts,
            class_names=class_names,
            normalisation=normalisation,
            version=VERSION,
            space=space_of(method),
            builder_sha256="" if builder is None else find_builder(builder).sha256,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the terms for a message."""
        return asdict(self)

    @contextmanager
    def opened(self, settings: Mapping[str, Any] | None = None) -> Iterator[Recipe]:
        """Yield the recipe, its files in a folder that lasts as long as the block, with settings of the client's."""
        with tempfile.TemporaryDirectory(prefix="fedfeast-") as folder:
            paths = {key: Path(folder) / f"{key}.csv" for key in NAMED_FILES if key in self.files}
            for key, path in paths.items():
                path.write_text(self.files[key])
            named = {key: str(path) for key, path in paths.items()}
            own = {**SERVER_ALONE, **named, **(settings or {})}
            recipe = parse_recipe(self.recipe, "of the server", own, self.facts)
            self._refuse_paths(recipe)
            self._refuse_other_builder(recipe)
            yield recipe

    def _refuse_paths(self, recipe: Recipe) -> None:
        """Refuse to look for a file on this machine that the server's recipe names and its terms do not bring."""
        if "variants.cache" not in self.files and recipe.variants.cache not in packaged_caches():
            raise InvalidInput(f"variants.cache = {recipe.variants.cache!r} names a file that the terms do not bring.")
        named = {"partition.file": recipe.partition.file, "data.split_file": recipe.data.split_file}
        named |= {"simulation.speeds": recipe.simulation.speeds} if recipe.simulation.names_file else {}
        if "population.file" not in self.files:
            named["population.file"] = recipe.population.file
        name = recipe.data.name
        if ":" not in name and (name == ".." or Path(name).name != name):  # it would lead out of the data folder
            named["data.name"] = name
        for setting, file in named.items():
            if file is not None:
                raise InvalidInput(f"{setting} = {file!r} names a file that the terms do not bring.")

    def _refuse_other_builder(self, recipe: Recipe) -> None:
        """Refuse to train networks that another version of the builder's file would make."""
        name = recipe.network.builder
        own = "" if name is None else find_builder(name).sha256
        if own != self.builder_sha256:
            raise InvalidInput(
                f"its builder {name} is another one than the server's (SHA-256 {own[:12] or 'none'} instead of "
                f"{self.builder_sha256[:12] or 'none'}): install the same file on both."
            )


def _chosen_members(recipe: Recipe) -> str:
    """Return the cache of members that the server chose, as the text of its file."""
    parts = build_parts(recipe)
    with tempfile.TemporaryDirectory(prefix="fedfeast-") as folder:
        write_cache(parts.cache, parts.elastic, Path(folder) / "members.csv")
        return (Path(folder) / "members.csv").read_text()


def read_terms(records: RecordDict) -> Terms:
    """Return the terms in a server's message; what is missing, unknown or of another type makes them unreadable."""
    content = TermsMessage.read(from_json(records, "terms", MOST_TERMS_BYTES), "terms")
    return Terms(
        recipe=content.recipe,
        files={str(key): text for key, text in content.files.items()},
        facts=DatasetFacts(**content.facts.model_dump()),
        class_names=tuple(content.class_names),
        normalisation=None
        if content.normalisation is None
        else Normalisation(tuple(content.normalisation.mean), tuple(content.normalisation.deviation)),
        version=content.version,
        space=content.space,
        builder_sha256=content.builder_sha256,
    )


def space_of(method: Method) -> str:
    """Return a short hash of the network and of what is served: equal on both sides, or training makes no sense."""
    network, points = method.network, method.operating_points()
    content: list[object] = [
        repr(type(network)),
        [[name, shape] for name, shape in network.layout.shapes.items()],
        [[point.price, repr(point.architecture)] for point in points],
    ]
    if isinstance(network, ElasticResNet) and network.branch != "rectified":
        content.append(network.branch)  # of the same tensors, another network
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
