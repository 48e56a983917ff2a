"""A user's own code: found by file and module, and run only where it is trusted."""

import json
import os
import py_compile
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.own_code import find_own, offer, remember, require_trust, trust, trusting

NewProcess = Callable[[], None]


def marked(file: Path, text: str = "found = []\n") -> Path:
    """Write code that leaves a file behind when it runs; return where that file would be."""
    marker = file.with_suffix(".ran")
    file.write_text(f"open({str(marker)!r}, 'w').close()\n{text}")
    return marker


def memory() -> Path:
    return Path(os.environ["FEDFEAST_HOME"]) / "trusted.json"


def test_a_named_file_and_module_are_executed_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = []\n")
    for source in (f"{file}:found", "pathlib:Path", f"{file}:missing", "os.path:join", "__main__:__name__"):
        trust(source, "data")
    assert find_own(f"{file}:found", "data") == []
    assert find_own(f"{file}:found", "data") is find_own(f"{file}:found", "data")
    assert find_own("pathlib:Path", "data") is Path
    assert find_own("os.path:join", "data") is os.path.join
    assert find_own(f"{file}:missing", "data") is None
    assert fedfeast.trust is trust


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.py:Mine", "method.name names the file nowhere.py, which is no Python file here: put it there, "),
        ("no_such_module:Mine", "method.name names the module 'no_such_module', which cannot be imported: "),
        ("json.no_such_module:Mine", "method.name names the module 'json.no_such_module', which cannot be imported: "),
        ("pathlib.inner:Mine", "method.name names the module 'pathlib.inner', which cannot be imported: "),
        ("../mine:Mine", "method.name names the module '../mine', which cannot be imported: "),
        (":Mine", "method.name names the module '', which cannot be imported: "),
        ("mine.py", "method.name = 'mine.py' names no code: write it as file.py:NAME or module:NAME."),
    ],
)
def test_what_is_not_there_is_named(source: str, message: str) -> None:
    for ask in (find_own, trust):
        with pytest.raises(InvalidInput) as caught:
            ask(source, "method.name")
        assert str(caught.value).startswith(message)


def test_what_a_program_holds_is_used_as_it_is_and_found_by_its_file_later(
    tmp_path: Path, new_process: NewProcess
) -> None:
    marker = marked(tmp_path / "mine.py", "found = ['of the file']\n")
    held = ["of the program"]
    source = offer(held, str(tmp_path / "mine.py"), "found", "network")
    assert source == f"{tmp_path / 'mine.py'}:found"
    assert find_own(source, "network.builder") is held
    require_trust(source, "network.builder", "a run folder")
    assert not marker.exists(), "the program runs already"
    remember([source])
    new_process()
    assert find_own(source, "network.builder") == ["of the file"]
    assert marker.exists()


def test_what_stands_in_no_file_is_not_offered(new_process: NewProcess) -> None:
    with pytest.raises(InvalidInput, match=r"network = adhoc stands in no file, so that no later run could find it"):
        offer(object(), "<stdin>", "adhoc", "network")


def test_code_that_nobody_named_is_refused_and_not_run(tmp_path: Path) -> None:
    marker = marked(tmp_path / "theirs.py")
    source = f"{tmp_path / 'theirs.py'}:found"
    sentence = (
        f"recipe theirs.toml names code to run, method.name = {source!r}, and {tmp_path / 'theirs.py'} "
        f"was not trusted on this machine before: read it, then add --trust (in Python fedfeast.trust({source!r})), "
        f"or name it yourself with --set method.name={source}."
    )
    with pytest.raises(InvalidInput) as caught:
        require_trust(source, "method.name", "recipe theirs.toml")
    assert str(caught.value) == sentence
    with pytest.raises(InvalidInput, match="a recipe names code to run"):
        find_own(source, "method.name")
    assert not marker.exists()
    with trusting():
        require_trust(source, "method.name", "recipe theirs.toml")
    assert not marker.exists()  # it was read alone
    assert find_own(source, "method.name") == []
    assert marker.exists()


@pytest.mark.usefixtures("another_machine")
def test_a_module_in_a_package_is_found_without_running_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: NewProcess
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "fedfeast_test_package"
    (package / "folder" / "inner").mkdir(parents=True)
    markers = [marked(package / "__init__.py"), marked(package / "folder" / "inner" / "mine.py")]
    source = "fedfeast_test_package.folder.inner.mine:found"  # folder and inner have no file of their own
    with pytest.raises(InvalidInput, match=r"mine\.py was not trusted"):
        find_own(source, "method.name")
    assert not any(marker.exists() for marker in markers)
    assert "fedfeast_test_package" not in sys.modules
    trust(source)
    assert find_own(source, "method.name") == []
    assert all(marker.exists() for marker in markers)
    remember([source])
    assert sorted(json.loads(memory().read_text()).values()) == sorted(
        str(marker.with_suffix(".py")) for marker in markers
    )
    for name in [name for name in sys.modules if name.startswith("fedfeast_test_package")]:
        monkeypatch.delitem(sys.modules, name)
    (package / "__init__.py").write_text("import antigravity\n")
    new_process()
    with pytest.raises(InvalidInput, match="has changed since it was trusted"):
        find_own(source, "method.name")


def test_a_module_that_lacks_another_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fedfeast_test_lacking.py").write_text("import no_such_module\n")
    trust("fedfeast_test_lacking:Mine")
    with pytest.raises(InvalidInput, match=r"cannot be imported: No module named 'no_such_module'\.$"):
        find_own("fedfeast_test_lacking:Mine", "method.name")
    assert "fedfeast_test_lacking" not in sys.modules


def test_no_compiled_file_stands_for_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = 'evil'\n")
    py_compile.compile(str(file))
    written = file.stat()
    file.write_text("found = 'good'\n")
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))  # Python would take the compiled file as current
    trust(f"{file}:found")
    assert find_own(f"{file}:found", "data") == "good"


@pytest.mark.usefixtures("another_machine")
def test_what_is_remembered_runs_until_it_changes(tmp_path: Path, new_process: NewProcess) -> None:
    file = tmp_path / "mine.py"
    marker = marked(file)
    source = f"{file}:found"
    remember([source])
    assert not memory().exists()  # nobody trusted it
    trust(source)
    remember([source])
    content = json.loads(memory().read_text())
    assert list(content.values()) == [str(file)]
    new_process()
    require_trust(source, "method.name", "recipe mine.toml")
    copy = tmp_path / "copy.py"
    copy.write_bytes(file.read_bytes())
    require_trust(f"{copy}:found", "method.name", "recipe mine.toml")  # the content counts, not the place
    new_process()
    file.write_text(file.read_text() + "more = 1\n")
    with pytest.raises(InvalidInput, match=r"mine\.py has changed since it was trusted: read it"):
        require_trust(source, "method.name", "recipe mine.toml")
    assert not marker.exists()
    assert json.loads(memory().read_text()) == content


def test_in_one_process_a_run_goes_on_with_the_code_it_began_with(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = 1\n")
    trust(f"{file}:found")
    assert find_own(f"{file}:found", "data") == 1
    file.write_text("found = 2\n")
    assert find_own(f"{file}:found", "data") == 1
    with pytest.raises(InvalidInput, match="has changed since"):
        require_trust(f"{file}:found", "data", "a run")
    trust(f"{file}:found")  # named again: as it stands now
    assert find_own(f"{file}:found", "data") == 2


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("1 / 0\n")
    trust(f"{file}:found")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            find_own(f"{file}:found", "data")
    assert "fedfeast_own_broken" not in sys.modules


def test_trust_reaches_every_thread_and_ends_with_its_block(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("found = 1\n")
    (tmp_path / "two.py").write_text("found = 2\n")
    found: list[int] = []
    with trusting():
        thread = threading.Thread(target=lambda: found.append(find_own(f"{tmp_path / 'one.py'}:found", "data")))
        thread.start()
        thread.join()
    assert found == [1]
    with pytest.raises(InvalidInput, match="not trusted"):
        find_own(f"{tmp_path / 'two.py'}:found", "data")


def test_a_damaged_memory_and_one_that_cannot_be_written_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = 1\n")
    for text in ("{", "[]"):
        monkeypatch.setenv("FEDFEAST_HOME", str(tmp_path))
        (tmp_path / "trusted.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"trusted\.json is damaged: delete it"):
            require_trust(f"{file}:found", "data", "a run")
    monkeypatch.setenv("FEDFEAST_HOME", str(file))
    trust(f"{file}:found")
    remember([f"{file}:found"])
    assert "own code is not remembered" in caplog.text
