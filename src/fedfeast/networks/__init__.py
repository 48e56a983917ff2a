"""One tensor, many networks: architectures, their cost, their place in a flat vector, their forward pass."""

from fedfeast.networks.elastic_resnet import Branch as Branch
from fedfeast.networks.elastic_resnet import ElasticResNet as ElasticResNet
from fedfeast.networks.elastic_resnet import SlicedVariant as SlicedVariant
from fedfeast.networks.layers import Weights as Weights
from fedfeast.networks.layout import Layout as Layout
from fedfeast.networks.layout import Shapes as Shapes
from fedfeast.networks.network import ElasticNetwork as ElasticNetwork
from fedfeast.networks.network import Network as Network
from fedfeast.networks.resnet import Initialisation as Initialisation
from fedfeast.networks.resnet import Level as Level
from fedfeast.networks.resnet import ResNet as ResNet
from fedfeast.networks.space import Architecture as Architecture
from fedfeast.networks.space import SearchSpace as SearchSpace
