"""Whether a recipe's sections suit its data: what is no image needs another network and no image augmentation."""

from fedfeast.data import DatasetFacts
from fedfeast.data.tasks import task_named
from fedfeast.errors import InvalidInput
from fedfeast.federation import CentralPrivacy, Method, Wire
from fedfeast.recipes.sections import (
    AggregationSection,
    AugmentationSection,
    DataSection,
    EvaluationSection,
    FleetSection,
    NetworkSection,
    PartitionSection,
    PopulationSection,
    PrivacySection,
    ServerSection,
    TrainingSection,
    VariantsSection,
    WireSection,
)

BRANCH_SETTINGS = ("branch", "branch_scale")  # of the package's own residual blocks
MEMBERS = "members"  # a cache that is chosen from a builder's own networks
SEARCHED = "searched"  # a cache that is searched in the elastic ResNet's space when a run begins
NO_IMAGE_AUGMENTATION = {"crop_padding": 0, "crop_fill": "black", "flip": False, "randaugment": (0, 0), "mixing": "off"}


def suited_augmentation(section: AugmentationSection, facts: DatasetFacts, data: str) -> AugmentationSection:
    """Return the augmentation without what does not suit and was not asked for; refuse what was asked for."""
    if facts.kind != "images":
        for name, nothing in NO_IMAGE_AUGMENTATION.items():
            given = getattr(section, name)
            if name in section.model_fields_set and given != nothing:
                raise InvalidInput(
                    f"augmentation.{name} = {given!r} is for images, and {data} holds {facts.kind}: leave it out, "
                    f"or choose {'mask_share' if facts.kind == 'tokens' else 'time_shift, noise or mask_share'}."
                )
        section = section.model_copy(update=NO_IMAGE_AUGMENTATION)
    elif section.crop_fill == "reflect" and section.crop_padding >= facts.side:
        raise InvalidInput(
            f"augmentation.crop_padding = {section.crop_padding} reaches beyond the mirror image of {data}'s "
            f"{facts.side} pixels: give at most {facts.side - 1}, or set augmentation.crop_fill=black."
        )
    if facts.kind == "tokens":
        for name in ("time_shift", "noise"):
            if getattr(section, name):
                raise InvalidInput(
                    f"augmentation.{name} = {getattr(section, name)} is for numbers, and {data} holds tokens: "
                    "leave it out, or choose mask_share."
                )
    if facts.task != "classification" and "mixing" not in section.model_fields_set:
        section = section.model_copy(update={"mixing": "off"})
    if facts.task != "classification" and section.mixing != "off":
        raise InvalidInput(
            f"augmentation.mixing = {section.mixing!r} mixes classes, and the task of {data} is {facts.task}: "
            "set augmentation.mixing=off."
        )
    _refuse_idle_mixing(section)
    return section


def _refuse_idle_mixing(section: AugmentationSection) -> None:
    if section.mixing == "off" and section.mixing_until < 1:
        raise InvalidInput(
            f"augmentation.mixing_until = {section.mixing_until:g} has no effect with augmentation.mixing = 'off': "
            "leave it out, or choose alternate or coin."
        )


def refuse_unsuited_network(section: DataSection, network: NetworkSection, variants: VariantsSection) -> None:
    """Refuse a network that cannot take the data, and settings of a builder where there is none."""
    facts, data = section.facts, section.name
    if variants.score is not None and variants.cache != MEMBERS:
        raise InvalidInput(
            f"variants.score = {variants.score!r} chooses among a builder's members, and variants.cache = "
            f"{variants.cache!r} is a list already: leave one of them out."
        )
    if network.builder is not None and variants.cache == SEARCHED:
        raise InvalidInput(
            f"variants.cache = 'searched' is for the elastic ResNet, and network.builder = {network.builder!r}: "
            "leave it out, and members of the builder are chosen."
        )
    if network.builder is not None:
        _refuse_branch_settings(network)
        return
    if facts.kind != "images" or facts.task != "classification":
        raise InvalidInput(
            f"{data} holds {facts.kind} for {facts.task}, and the elastic ResNet takes images of classes: "
            "set network.builder to a network for it, e.g. nested_transformer."
        )
    if network.choices or network.options:
        raise InvalidInput("network.choices and network.options are a builder's: set network.builder too.")
    if variants.cache == MEMBERS:
        raise InvalidInput('variants.cache = "members" needs network.builder: name a cache, or set the builder.')


def _refuse_branch_settings(network: NetworkSection) -> None:
    """Refuse settings of the package's residual blocks beside a builder, whose constructor makes its own."""
    for name in BRANCH_SETTINGS:
        given = getattr(network, name)
        if given != type(network).model_fields[name].default:
            raise InvalidInput(
                f"network.{name} = {given!r} is of the package's ResNets, and network.builder = {network.builder!r} "
                "makes its own layers: leave it out, or build it into the constructor."
            )


def refuse_unsuited_prior(training: TrainingSection, data: DataSection) -> None:
    """Refuse frequencies of classes where examples have none."""
    if training.class_prior and data.facts.task != "classification":
        raise InvalidInput(
            f"training.class_prior = {training.class_prior:g} is for classes, and the task of {data.name} is "
            f"{data.facts.task}: leave it out."
        )


def refuse_unsuited_clients(section: DataSection, population: PopulationSection, evaluation: EvaluationSection) -> None:
    """Refuse the data's own clients where it has none, rules for them where they are not used, and foreign metrics."""
    facts = section.facts
    if evaluation.calibration_augmented and facts.kind != "images":
        raise InvalidInput(
            f"evaluation.calibration_augmented = true is for images, and {section.name} holds {facts.kind}: "
            "leave it out."
        )
    if evaluation.metric is not None:
        task_named(facts.task).metric_named(evaluation.metric)
    if population.source == "data":
        if not facts.clients:
            raise InvalidInput(
                f"population.source = 'data', and {section.name} has no clients of its own: "
                "prepare it with --clients, or choose zipf."
            )
        return
    if population.source == "fleet" and facts.clients:
        return  # its server divides the data by their clients too
    for name in ("held_out_clients", "server_clients", "least_examples", "small_clients", "most_examples"):
        if getattr(section, name) != type(section).model_fields[name].default:
            raise InvalidInput(
                f"data.{name} = {getattr(section, name)!r} is for the data's own clients: "
                "set population.source=data, or leave it out."
            )


def refuse_noiseless_counts(evaluation: EvaluationSection, privacy: PrivacySection) -> None:
    """Refuse evaluation by clients beside privacy: their counts and statistics are told without noise."""
    if evaluation.by == "clients" and privacy.clip_norm is not None:
        raise InvalidInput(
            "evaluation.by = 'clients' tells counts and statistics without noise, and privacy.clip_norm = "
            f"{privacy.clip_norm:g} asks for privacy: set evaluation.by=server, or privacy.clip_norm=none."
        )


def refuse_unsuited_buffer(
    fleet: FleetSection,
    training: TrainingSection,
    aggregation: AggregationSection,
    server: ServerSection,
    evaluation: EvaluationSection,
    wire: WireSection,
) -> None:
    """Refuse a buffer that is never full, and what has no meaning for answers to vectors of several ages."""
    if fleet.buffer is not None and fleet.buffer > training.clients_per_round:
        raise InvalidInput(
            f"fleet.buffer = {fleet.buffer} is more than are ever at work (training.clients_per_round = "
            f"{training.clients_per_round}): give at most that."
        )
    if fleet.buffer is not None and fleet.least_answers > fleet.buffer:
        raise InvalidInput(
            f"fleet.least_answers = {fleet.least_answers} is more than a merge takes (fleet.buffer = {fleet.buffer}): "
            "lower the one or raise the other."
        )
    if training.cohort == "poisson":
        raise InvalidInput(
            "training.cohort = 'poisson', which central privacy counts on, lets each client join by itself, and "
            "fleet.mode = 'buffered' fills the places of those who have answered: set fleet.mode=synchronous, or "
            "training.cohort=named."
        )
    if aggregation.rule in ("trimmed-mean", "median"):
        raise InvalidInput(
            f"aggregation.rule = {aggregation.rule!r} ranks a whole cohort's answers to one vector, and fleet.mode = "
            "'buffered' merges the first few, of several ages: set aggregation.rule to mean or clipped-mean."
        )
    if server.lookahead:
        raise InvalidInput(
            f"server.lookahead = {server.lookahead} needs answers to the vector ahead that was sent last, and "
            "fleet.mode = 'buffered' merges answers to earlier ones: leave it out, or set server.optimiser=momentum."
        )
    for name, word in (("down", wire.down), ("up", wire.up), ("up_topk", wire.up_topk or "lossless")):
        if word not in ("lossless", "float32"):
            raise InvalidInput(
                f"wire.{name} = {word!r} is told from what a client was last sent, and fleet.mode = 'buffered' merges "
                "answers of several ages: leave it out, or set fleet.mode=synchronous."
            )
    if evaluation.by == "clients":
        raise InvalidInput(
            "evaluation.by = 'clients' asks those who are not at work, and fleet.mode = 'buffered' keeps the slow ones "
            "at work all the time: set evaluation.by=server, or fleet.mode=synchronous."
        )


def refuse_idle_privacy(privacy: PrivacySection) -> None:
    """Refuse settings of central privacy that nothing would come of."""
    is_central = privacy.mechanism == "central"
    for name in ("usual_examples", "most_weight", "least_holders"):
        given = getattr(privacy, name)
        if not is_central and given != type(privacy).model_fields[name].default:
            raise InvalidInput(
                f"privacy.{name} = {given:g} is for noise that the server adds: set "
                "privacy.mechanism=central, or leave it out."
            )
    if is_central:
        if privacy.clip_norm is None:
            raise InvalidInput(
                "privacy.mechanism = 'central' bounds nothing without privacy.clip_norm: set it, e.g. to 1."
            )
        bounds = (privacy.usual_examples, privacy.most_weight)
        CentralPrivacy(privacy.clip_norm, privacy.noise_multiplier, privacy.delta, *bounds)


def refuse_beside_central(
    training: TrainingSection, aggregation: AggregationSection, privacy: PrivacySection, method: type[Method]
) -> None:
    """Refuse what would let one client's data move a round's sum by more than central privacy's noise hides."""
    central = "privacy.mechanism = 'central'"
    if training.cohort != "poisson":
        raise InvalidInput(
            f"{central} counts on cohorts that each client joins by itself, and training.cohort = "
            f"{training.cohort!r}: set training.cohort=poisson."
        )
    if method.plans_differ:
        raise InvalidInput(
            f"{method.__name__} gives a client its network by who else takes part, which {central} does not hide: "
            "choose another method, or privacy.mechanism=local."
        )
    by_others = {
        "rule": (aggregation.rule, "mean", "weighs answers against each other"),
        "refuse_multiple": (aggregation.refuse_multiple, None, "compares a change with those of others"),
        "weight_cap": (aggregation.weight_cap, None, "follows the weights of others"),
        "activated_share": (aggregation.activated_share, False, "divides by what this round's clients activated"),
    }
    for name, (given, nothing, why) in by_others.items():
        if given != nothing:
            raise InvalidInput(
                f"aggregation.{name} = {given!r} {why}, and {central} needs a sum of clipped changes: leave it out."
            )
    if aggregation.weigh == "alike" and privacy.usual_examples is not None:
        raise InvalidInput(
            f"aggregation.weigh = 'alike' and privacy.usual_examples = {privacy.usual_examples:g} contradict each "
            "other: leave one of them out."
        )


def refuse_unsuited_division(
    data: DataSection, population: PopulationSection, partition: PartitionSection, evaluation: EvaluationSection
) -> None:
    """Refuse files of who holds what where nothing is divided by them, and a slip without its cause.

    A rule that has nothing to divide is passed over, as the numbers of the server's examples are: recipes bring one.
    """
    files = {"data.split_file": data.split_file is not None, "partition.file": partition.file is not None}
    if data.split_rule != "balanced" and data.split_file is not None:
        raise InvalidInput(
            f"data.split_rule = {data.split_rule!r} has no effect beside data.split_file: give one of them."
        )
    if population.source == "data":
        idle = next((name for name, is_set in files.items() if is_set), None)
        if idle is not None:
            raise InvalidInput(
                f"{idle} has no effect with population.source = 'data', where the data say whose the examples are: "
                "leave it out, or choose another source."
            )
    if evaluation.by == "clients":
        if data.split_file is not None:
            raise InvalidInput(
                "data.split_file has no effect with evaluation.by = 'clients', where the server holds no examples: "
                "leave it out, or set evaluation.by=server."
            )
        if partition.loaded == "as-loaded":
            raise InvalidInput(
                "partition.loaded = 'as-loaded' needs a pool without the server's examples, and evaluation.by = "
                "'clients' leaves it none: set partition.loaded=as-designed, or evaluation.by=server."
            )
    if partition.loaded == "as-loaded" and data.split_rule != "authors":
        raise InvalidInput(
            "partition.loaded = 'as-loaded' reads shards of the authors' permuted pool in the order of the data, and "
            f"data.split_rule = {data.split_rule!r}: set data.split_rule=authors."
        )


def refuse_unsuited_wire(wire: WireSection, fleet: FleetSection, privacy: PrivacySection) -> None:
    """Refuse a fleet's own precision of slices beside [wire], and what central privacy does not account for."""
    if fleet.wire != "lossless" and wire != WireSection(state_gib=wire.state_gib):
        raise InvalidInput(
            f"fleet.wire = {fleet.wire!r} and [wire] set the same thing: leave fleet.wire out, or all of [wire]."
        )
    if privacy.clip_norm is None or privacy.mechanism != "central":
        return
    # Choice: a residual carries what a client did in one round, unnoised, into the next: its rounds are then not drawn
    # independently, as the accountant takes them to be. How long chosen values are is told without noise.
    if wire.error_feedback and Wire(**wire.model_dump()).feeds_back:
        raise InvalidInput(
            "privacy.mechanism = 'central' accounts for rounds that remember nothing of earlier ones: set "
            "wire.error_feedback=false."
        )
    if wire.up_topk is not None:
        raise InvalidInput(
            f"wire.up_topk = {wire.up_topk} lets clients choose by their data what they send, and privacy.mechanism = "
            "'central' would tell how many bytes that takes: leave it out."
        )
