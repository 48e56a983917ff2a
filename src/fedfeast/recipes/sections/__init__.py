"""The sections of a recipe: unknown keys, wrong types and values out of range are errors."""

from fedfeast.recipes.sections.clients import DataSection as DataSection
from fedfeast.recipes.sections.clients import DescriptionSection as DescriptionSection
from fedfeast.recipes.sections.clients import PartitionSection as PartitionSection
from fedfeast.recipes.sections.clients import PopulationSection as PopulationSection
from fedfeast.recipes.sections.networks import NetworkSection as NetworkSection
from fedfeast.recipes.sections.networks import ResNetSection as ResNetSection
from fedfeast.recipes.sections.networks import VariantsSection as VariantsSection
from fedfeast.recipes.sections.networks import method_section as method_section
from fedfeast.recipes.sections.operation import CheckpointSection as CheckpointSection
from fedfeast.recipes.sections.operation import EngineSection as EngineSection
from fedfeast.recipes.sections.operation import EvaluationSection as EvaluationSection
from fedfeast.recipes.sections.operation import FleetSection as FleetSection
from fedfeast.recipes.sections.operation import SimulationSection as SimulationSection
from fedfeast.recipes.sections.section import Section as Section
from fedfeast.recipes.sections.training import AdversarySection as AdversarySection
from fedfeast.recipes.sections.training import AggregationSection as AggregationSection
from fedfeast.recipes.sections.training import AugmentationSection as AugmentationSection
from fedfeast.recipes.sections.training import PrivacySection as PrivacySection
from fedfeast.recipes.sections.training import ServerSection as ServerSection
from fedfeast.recipes.sections.training import TrainingSection as TrainingSection
from fedfeast.recipes.sections.training import WireSection as WireSection
