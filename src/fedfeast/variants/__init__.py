"""Which networks are trained and served."""

from fedfeast.variants.cache import Variant as Variant
from fedfeast.variants.cache import VariantCache as VariantCache
from fedfeast.variants.cache import packaged_caches as packaged_caches
from fedfeast.variants.cache import read_cache as read_cache
from fedfeast.variants.cache import write_cache as write_cache
from fedfeast.variants.drawing import draw_architectures as draw_architectures
from fedfeast.variants.drawing import draw_cache as draw_cache
from fedfeast.variants.members import choose_members as choose_members
