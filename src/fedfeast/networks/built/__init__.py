"""Elastic networks made of a user's own constructor."""

from fedfeast.networks.built.builder import Builder as Builder
from fedfeast.networks.built.builder import elastic as elastic
from fedfeast.networks.built.built_network import BuiltNetwork as BuiltNetwork
from fedfeast.networks.built.checking import CheckReport as CheckReport
from fedfeast.networks.built.checking import check as check
from fedfeast.networks.built.member import Member as Member
