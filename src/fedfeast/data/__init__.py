"""Which examples: data sets, the server's splits, augmented and mixed batches."""

from fedfeast.data.augmentation import Augmentation as Augmentation
from fedfeast.data.augmentation import normalise as normalise
from fedfeast.data.batches import Batch as Batch
from fedfeast.data.batches import LocalPlan as LocalPlan
from fedfeast.data.batches import Preparation as Preparation
from fedfeast.data.batches import count_steps as count_steps
from fedfeast.data.batches import draw_local_plan as draw_local_plan
from fedfeast.data.batches import make_batches as make_batches
from fedfeast.data.datasets import array_hashes as array_hashes
from fedfeast.data.datasets import class_names_of as class_names_of
from fedfeast.data.datasets import facts_of as facts_of
from fedfeast.data.datasets import is_here as is_here
from fedfeast.data.datasets import is_known as is_known
from fedfeast.data.datasets import list_data as list_data
from fedfeast.data.datasets import load_dataset as load_dataset
from fedfeast.data.datasets import published_normalisation as published_normalisation
from fedfeast.data.examples import Dataset as Dataset
from fedfeast.data.examples import Examples as Examples
from fedfeast.data.examples import NaturalClients as NaturalClients
from fedfeast.data.examples import Normalisation as Normalisation
from fedfeast.data.examples import ShardedExamples as ShardedExamples
from fedfeast.data.examples import measure_normalisation as measure_normalisation
from fedfeast.data.mixing import Mixing as Mixing
from fedfeast.data.photo_folders import PreparedPhotos as PreparedPhotos
from fedfeast.data.photo_folders import prepare_photos as prepare_photos
from fedfeast.data.reading.catalogue import EMBEDDED as EMBEDDED
from fedfeast.data.reading.catalogue import OFFICIAL as OFFICIAL
from fedfeast.data.reading.facts import DatasetFacts as DatasetFacts
from fedfeast.data.reading.fetching import fetch_data as fetch_data
from fedfeast.data.reading.options import PrepareOptions as PrepareOptions
from fedfeast.data.reading.own_functions import load_own as load_own
from fedfeast.data.reading.preparing import prepare_data as prepare_data
from fedfeast.data.splits import ServerSplit as ServerSplit
from fedfeast.data.splits import split_as_authors as split_as_authors
from fedfeast.data.splits import split_by_file as split_by_file
from fedfeast.data.splits import split_server_examples as split_server_examples

ImageOptions = PrepareOptions  # its name while all data were images
