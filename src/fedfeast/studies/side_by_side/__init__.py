"""Several runs side by side on one device, a process each."""

from fedfeast.studies.side_by_side.progress import RunProgress as RunProgress
from fedfeast.studies.side_by_side.progress import SideBySideObserver as SideBySideObserver
from fedfeast.studies.side_by_side.schedule import FailedRuns as FailedRuns
from fedfeast.studies.side_by_side.schedule import Failure as Failure
from fedfeast.studies.side_by_side.schedule import run_side_by_side as run_side_by_side
from fedfeast.studies.side_by_side.sharing import PendingRun as PendingRun
from fedfeast.studies.side_by_side.sharing import refuse_at_once as refuse_at_once
from fedfeast.studies.side_by_side.sharing import sharing_device as sharing_device
