"""What every method must keep: the package's own by its tests, a user's by one command."""

from fedfeast.runs.contract.checking import MethodReport as MethodReport
from fedfeast.runs.contract.checking import check_method as check_method
