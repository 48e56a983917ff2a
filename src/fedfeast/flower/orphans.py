"""A server app that its SuperLink has left behind ends, so that the next start finds the run's folder free."""

import logging
import os
import threading
import time

LOG = logging.getLogger("fedfeast.fleet")
LOOK_SECONDS = 1.0


def end_with_parent() -> None:
    """End this process, from now on, when the one that started it is gone."""
    # A SuperLink that is stopped does not end its server app, which would knock at its door for minutes and hold the
    # folder meanwhile. Nothing is lost by a hard end: every finished round is saved, and files are written whole.
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        LOG.error("the SuperLink is gone: start it and the same run again, and it goes on after the last saved round")
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
