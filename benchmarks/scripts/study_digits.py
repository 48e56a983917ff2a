"""Every method on the digits by one command, `fedfeast study digits-all --seeds 0`, against eight minutes.

Two runs share two cores, a process of one thread each. CPU seconds say what it takes where other work shares the
cores. Exit code 1 where it takes longer.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from result_files import write_result

from fedfeast.machine import processor_and_cores

MOST_SECONDS = 480.0


def measure(words: list[str], folder: Path) -> dict[str, Any]:
    """Run the study in a folder; return what it took and its tables."""
    load, started = os.getloadavg()[0], time.perf_counter()
    command = [sys.executable, "-m", "fedfeast", *words, "--out", str(folder / "digits-all"), "--json"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    wall, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(told)
    tables = [(folder / "digits-all" / "tables" / f"{one['name']}.md").read_text() for one in result["tables"]]
    return {
        "seconds": round(wall, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "pairs": result["pairs"],
        "tables": tables,
        "notes": result["notes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="fewer, for a trial of the script")
    parser.add_argument("--folder", type=Path, help="keeps the study and its runs; a temporary one by default")
    parser.add_argument("--out", type=Path, help="a Markdown file to write; JSON goes beside it")
    arguments = parser.parse_args()
    words = ["study", "digits-all", "--seeds", arguments.seeds, "--at-once", str(arguments.at_once)]
    words += [] if arguments.rounds is None else ["--rounds", str(arguments.rounds)]
    with tempfile.TemporaryDirectory() as temporary:
        result = measure(words, arguments.folder or Path(temporary))
    text = f"""# Every method on the digits, {date.today().isoformat()}

`fedfeast {" ".join(words)}`: **{result["seconds"]:.0f} s** from start to report, {result["cpu_seconds"]:.0f} s of CPU
time in all processes. At most {MOST_SECONDS:.0f} s are allowed for one seed.

{processor_and_cores()}; Python {platform.python_version()}, torch {version("torch")}; load average before it
{result["load_before"]:.2f}, after it {result["load_after"]:.2f}.

{chr(10).join(result["tables"])}
{chr(10).join(f"- {note}" for note in result["notes"])}
"""
    print(text)
    if arguments.out is not None:
        write_result(arguments.out, text, {key: value for key, value in result.items() if key != "tables"})
    if arguments.seeds.count(",") == 0 and result["seconds"] > MOST_SECONDS:
        raise SystemExit(f"longer than {MOST_SECONDS:.0f} s: {result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
