"""What a client receives, and what that saves."""

from fedfeast.routing.envelope import envelope_of as envelope_of
from fedfeast.routing.slice_map import ChosenSlices as ChosenSlices
from fedfeast.routing.slice_map import LeadingSlices as LeadingSlices
from fedfeast.routing.slice_map import MaskedPositions as MaskedPositions
from fedfeast.routing.slice_map import SliceMap as SliceMap
from fedfeast.routing.slice_map import read_slice_map as read_slice_map
from fedfeast.routing.traffic import Traffic as Traffic
from fedfeast.routing.traffic import count_traffic as count_traffic
