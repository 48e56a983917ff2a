"""The process of one run among several: ``python -m fedfeast.studies.side_by_side.child FOLDER`` trains it to its end.

Trackers to tell are named behind the folder, as --track names them.
Its standard input is a pipe on which nothing is written. When the other end is closed, because the run is to stop or
because the process that started it is gone, training saves what it has and ends.
"""

import _thread
import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking import tracked
from fedfeast.runs import Interrupted, Run

STOPPED, REFUSED = 130, 2  # exit codes, as of the command line
REPEAT_SECONDS, REPEATS = 5, 10  # an interrupt may be lost in code that swallows exceptions


def main() -> None:
    """Train the run in the folder that the command line names, told to the trackers that it names."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        run, track = Run.open(Path(sys.argv[1])), sys.argv[2:]
        with tracked(run, track) if track else nullcontext() as observer:
            run.train(observer)
    except (Interrupted, KeyboardInterrupt):
        sys.exit(STOPPED)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)


def _stop_with_parent() -> None:
    """Interrupt training when standard input ends."""
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the process ends
        pass
    for _ in range(REPEATS):
        _thread.interrupt_main()
        time.sleep(REPEAT_SECONDS)
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
