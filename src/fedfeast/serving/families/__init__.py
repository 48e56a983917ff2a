"""The network families that can leave the building: how each is described, and rebuilt with torch alone.

A family is one file here and one entry in ``registry.FAMILIES``. Bundles carry a copy of the file, and of the loader
``standalone.py`` beside it, so both import torch and the standard library alone. A family's file holds
``describe(network, architecture)``, which returns a table of plain values with at least image_channels, image_size and
classes; and ``Network(table)``, a module of plain layers from normalised images to logits, whose tensors have the
trained network's names (``registry.state_dict_of``) and which torch.fx can trace.
"""
