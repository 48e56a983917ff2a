"""What a round is, for any method."""

from fedfeast.federation.aggregation import Accumulator as Accumulator
from fedfeast.federation.cohort import sample_cohort as sample_cohort
from fedfeast.federation.engine import Collected as Collected
from fedfeast.federation.engine import Engine as Engine
from fedfeast.federation.engine import RoundResult as RoundResult
from fedfeast.federation.local_sgd import LocalSgd as LocalSgd
from fedfeast.federation.losses import mixed_cross_entropy as mixed_cross_entropy
from fedfeast.federation.losses import soft_cross_entropy as soft_cross_entropy
from fedfeast.federation.method import Method as Method
from fedfeast.federation.parts import Parts as Parts
from fedfeast.federation.records import Assignment as Assignment
from fedfeast.federation.records import Client as Client
from fedfeast.federation.records import Constants as Constants
from fedfeast.federation.records import Deployed as Deployed
from fedfeast.federation.records import OperatingPoint as OperatingPoint
from fedfeast.federation.records import Pass as Pass
from fedfeast.federation.records import State as State
