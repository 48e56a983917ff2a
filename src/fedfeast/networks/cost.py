"""Closed-form inference cost of an architecture: multiply-accumulates and parameters."""

from fedfeast.networks.space import Architecture, SearchSpace


def count_convolution_macs(space: SearchSpace, architecture: Architecture) -> int:
    """Return the multiply-accumulates per example of all convolutions; norms, ReLU and pooling are free."""
    sizes = space.feature_sizes()
    incoming = space.stem_width(architecture)
    macs = 9 * space.image_channels * incoming * sizes[0] ** 2
    for stage, extra_blocks in enumerate(architecture.depths):
        width = space.stage_width(architecture, stage)
        middle = space.middle_width(architecture, stage)
        first_block = 9 * middle * (incoming + width) + incoming * width  # with its 1x1 projection
        macs += sizes[stage + 1] ** 2 * (first_block + extra_blocks * 18 * middle * width)
        incoming = width
    return macs


def count_macs(space: SearchSpace, architecture: Architecture) -> int:
    """Return MAC(a): multiply-accumulates per example of the convolutions and the classifier."""
    classifier = space.stage_width(architecture, space.num_stages - 1) * space.classes
    return count_convolution_macs(space, architecture) + classifier


def count_parameters(space: SearchSpace, architecture: Architecture) -> int:
    """Return the parameters: convolutions, two per normalised channel, classifier with bias."""
    incoming = space.stem_width(architecture)
    parameters = (9 * space.image_channels + 2) * incoming
    for stage, extra_blocks in enumerate(architecture.depths):
        width = space.stage_width(architecture, stage)
        middle = space.middle_width(architecture, stage)
        first_block = 9 * middle * (incoming + width) + incoming * width + 2 * (middle + 2 * width)
        parameters += first_block + extra_blocks * (18 * middle * width + 2 * (middle + width))
        incoming = width
    return parameters + (incoming + 1) * space.classes
