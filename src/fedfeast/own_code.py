"""A user's own code, named as ``file.py:NAME`` or ``module:NAME`` in a setting: it runs only where it is trusted."""

import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.locks import held_in_turn
from fedfeast.whole_files import write_json

HOME_VARIABLE = "FEDFEAST_HOME"


@dataclass(frozen=True)
class Part:
    """One module of some code, with its file's content as it was read; none where it has no source file."""

    spec: ModuleSpec
    content: bytes | None

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the content."""
        return None if self.content is None else hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Code:
    """What a place holds: a file, or a module after the packages above it, which run before it."""

    place: str  # a file's resolved path, or a module's dotted name
    parts: tuple[Part, ...]

    @property
    def is_file(self) -> bool:
        """Whether it was named by its file."""
        return self.place.endswith(".py")

    @property
    def file(self) -> str:
        """Where to read it."""
        return self.parts[-1].spec.origin or self.place

    @property
    def files(self) -> dict[str, str]:
        """The files by the SHA-256 of their contents; empty where some part cannot be read."""
        found = {part.digest: part.spec.origin for part in self.parts if part.spec.origin is not None}
        return {digest: file for digest, file in found.items() if digest} if None not in found else {}


@dataclass
class _Permissions:
    """What may run in this process, whichever thread asks: a server opens runs in several."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    codes: dict[str, Code] = field(default_factory=dict)  # by place, as they were read when they were trusted
    modules: dict[str, tuple[Code, ModuleType]] = field(default_factory=dict)  # by place, as they were executed
    offered: dict[str, Any] = field(default_factory=dict)  # what a program of the user's holds itself, by its name
    open_blocks: int = 0  # of trusting()


_PERMISSIONS = _Permissions()


def trust(source: str, setting: str = "trust") -> None:
    """Let this process run code that its own user names, as it stands now: ``file.py:NAME`` or ``module:NAME``."""
    code = _read(source, setting)
    with _PERMISSIONS.lock:
        _PERMISSIONS.codes[code.place] = code


def offer(thing: Any, file: str, name: str, setting: str) -> str:
    """Name something that the user's own program holds: this process uses it as it is, later ones run its file."""
    if not Path(file).is_file():
        raise InvalidInput(f"{setting} = {name} stands in no file, so that no later run could find it: put it in one.")
    source = f"{Path(file).resolve()}:{name}"
    trust(source, setting)
    with _PERMISSIONS.lock:
        _PERMISSIONS.offered[source] = thing
    return source


@contextmanager
def trusting() -> Iterator[None]:
    """Trust all code that recipes and run folders name while the block runs, in every thread."""
    with _PERMISSIONS.lock:
        _PERMISSIONS.open_blocks += 1
    try:
        yield
    finally:
        with _PERMISSIONS.lock:
            _PERMISSIONS.open_blocks -= 1


def require_trust(source: str, setting: str, where: str) -> Code:
    """Return code that a text from elsewhere names, read but not run; refuse it unless it is trusted."""
    code = _read(source, setting)
    with _PERMISSIONS.lock:
        permitted = _PERMISSIONS.codes.get(code.place)
        if permitted is not None and _same(permitted, code):
            return permitted
        if not _PERMISSIONS.open_blocks:
            remembered = _remembered()
            unknown = {file for digest, file in code.files.items() if digest not in remembered}
            if unknown or not code.files:
                changed = permitted is not None or not unknown.isdisjoint(remembered.values())
                raise InvalidInput(_refusal(source, setting, where, code.file, changed))
        _PERMISSIONS.codes[code.place] = code
        return code


def find_own(source: str, setting: str) -> Any:
    """Return what trusted code has by the name, or None where it has no such thing; it is executed once."""
    with _PERMISSIONS.lock:
        if source in _PERMISSIONS.offered:
            return _PERMISSIONS.offered[source]
        code = _PERMISSIONS.codes.get(_place(source, setting))
        if code is None:
            code = require_trust(source, setting, "a recipe")
        executed, module = _PERMISSIONS.modules.get(code.place, (None, None))
        if executed is None or not _same(executed, code):
            module = _execute(code, setting)
            _PERMISSIONS.modules[code.place] = (code, module)
        return getattr(module, source.rpartition(":")[2], None)


def find_named(name: str, known: Mapping[str, Any], setting: str, form: str) -> Any:
    """Return what the package has by a name, or what trusted code has by ``file.py:NAME`` or ``module:NAME``."""
    if name in known:
        return known[name]
    if ":" not in name:
        close = get_close_matches(name, known, n=3)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise InvalidInput(
            f"{setting} = {name!r} is unknown{hint}: choose one of {', '.join(known)}, or name your own as {form}."
        )
    return find_own(name, setting)


def remember(sources: Sequence[str]) -> None:
    """Trust code that this process was allowed to run in later processes of this machine too, until it changes."""
    with _PERMISSIONS.lock:
        codes = [_PERMISSIONS.codes.get(_place(source, "remember")) for source in sources]
        files = {digest: file for code in codes if code is not None for digest, file in code.files.items()}
    try:
        if files.keys() <= _remembered().keys():
            return
        memory = _memory()
        memory.parent.mkdir(parents=True, exist_ok=True)
        with held_in_turn(memory.with_suffix(".lock")):
            write_json(memory, {**_remembered(), **files})
    except (OSError, InvalidInput) as error:  # no reason to give up a training
        logging.getLogger("fedfeast").warning("own code is not remembered, so it needs --trust again: %s", error)


def _memory() -> Path:
    """Return the file that remembers trusted code: outside every run folder, since those are given away."""
    return home_folder() / "trusted.json"


def home_folder() -> Path:
    """Return the folder of what this user's machine remembers."""
    chosen = os.environ.get(HOME_VARIABLE)
    try:
        return Path(chosen).expanduser() if chosen else Path.home() / ".fedfeast"
    except RuntimeError as error:
        raise InvalidInput(f"this user has no home folder: choose a folder with ${HOME_VARIABLE}.") from error


def _remembered() -> dict[str, str]:
    """Return the files that were trained with here, by the SHA-256 of their contents."""
    memory = _memory()
    try:
        content = json.loads(memory.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InvalidInput(f"{memory} is damaged: delete it, and name your own code once more.")
    return content


def _refusal(source: str, setting: str, where: str, file: str, changed: bool) -> str:
    why = "has changed since it was trusted" if changed else "was not trusted on this machine before"
    return (
        f"{where} names code to run, {setting} = {source!r}, and {file} {why}: read it, then add --trust "
        f"(in Python fedfeast.trust({source!r})), or name it yourself with --set {setting}={source}."
    )


def _same(one: Code, other: Code) -> bool:
    return [part.content for part in one.parts] == [part.content for part in other.parts]


def _place(source: str, setting: str) -> str:
    place, colon, _ = source.rpartition(":")
    if not colon:
        raise InvalidInput(f"{setting} = {source!r} names no code: write it as file.py:NAME or module:NAME.")
    return str(Path(place).resolve()) if place.endswith(".py") else place


def _read(source: str, setting: str) -> Code:
    """Find and read a file or a module without running any of it."""
    place = _place(source, setting)
    if not place.endswith(".py"):
        return Code(place, tuple(_read_module(place, setting)))
    path = Path(place)
    spec = spec_from_file_location(f"fedfeast_own_{path.stem}", path)
    if not path.is_file() or spec is None:
        named = source.rpartition(":")[0]
        raise InvalidInput(
            f"{setting} names the file {named}, which is no Python file here: put it there, seen from the current "
            "folder, or give its path."
        )
    return Code(place, (Part(spec, path.read_bytes()),))


def _read_module(place: str, setting: str) -> Iterator[Part]:
    """Yield a module after the packages above it; importlib's own find_spec would run those."""
    names, search = place.split("."), None
    for end in range(1, len(names) + 1):
        spec = _find_spec(".".join(names[:end]), search) if all(map(str.isidentifier, names)) else None
        if spec is None:
            raise InvalidInput(f"{setting} names the module {place!r}, which cannot be imported: there is none here.")
        is_source = spec.has_location and str(spec.origin).endswith(".py")
        yield Part(spec, Path(str(spec.origin)).read_bytes() if is_source else None)
        if spec.origin is None:  # a package without a file: folders of this name
            folders = [Path(entry) / names[end - 1] for entry in (sys.path if search is None else search)]
            search = [str(folder) for folder in folders if folder.is_dir()]
        else:
            search = list(spec.submodule_search_locations or [])


def _find_spec(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, search) for finder in sys.meta_path)
    try:
        spec = next((spec for spec in found if spec is not None), None)
    except KeyError:  # a package without a file below one that was not imported yet
        return ModuleSpec(name, None, is_package=True)
    if spec is None and name in sys.modules:  # made by a program, like __main__ and os.path
        return ModuleSpec(name, None, origin="no file")
    return spec


def _execute(code: Code, setting: str) -> ModuleType:
    """Run what was read; what the code itself raises is the user's to see."""
    for part in code.parts:
        name = part.spec.name
        if name in sys.modules and not code.is_file:
            continue
        try:
            if part.content is None:
                import_module(name)
            else:
                _execute_part(part.spec, part.content)
        except ModuleNotFoundError as error:
            if code.is_file:
                raise
            raise InvalidInput(
                f"{setting} names the module {code.place!r}, which cannot be imported: {error}."
            ) from error
    return sys.modules[code.parts[-1].spec.name]


def _execute_part(spec: ModuleSpec, content: bytes) -> None:
    """Run a content that was read as a module; no compiled file beside it has a say."""
    module, before = module_from_spec(spec), sys.modules.get(spec.name)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        exec(compile(content, str(spec.origin), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        sys.modules.pop(spec.name, None)
        if before is not None:
            sys.modules[spec.name] = before
        raise
    package, _, last = spec.name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)
