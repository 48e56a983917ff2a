from typing import Any

from fedfeast.presentation.palette import colour_of
from fedfeast.serving.card import curve_picture, write_card, write_ladder_card

CURVE = (
    {"name": "1k", "macs": 1000, "parameters": 10, "accuracy": 0.5},
    {"name": "3k", "macs": 3000, "parameters": 30, "accuracy": 0.75},
)
MANIFEST: dict[str, Any] = {
    "fedfeast": "0.1.0",
    "run": {"name": "mine", "recipe": "digits", "method": "feast", "data": "digits", "seed": 3, "best_round": 7},
    "name": "3k",
    "architecture": {"depths": [1]},
    "cached": True,
    "macs": 3000,
    "parameters": 30,
    "bytes": 120,
    "masked": None,
    "untrained_share": 0.0,
    "test_accuracy": 0.75,
    "validation_accuracy": None,
    "accuracy_from": {"test": "the run's evaluation", "validation": None},
    "calibration": {"examples": 120, "sha256": "ab" * 32},
    "class_names": ["cat", "dog"],
    "network": {"family": "elastic-resnet", "image_channels": 1, "image_size": 8},
}


def test_the_card_says_what_and_where() -> None:
    card = write_card(MANIFEST, CURVE)
    for part in (
        "# digits classifier of 3k MACs",
        "federated run `mine`",
        '| architecture | elastic-resnet: `{"depths": [1]}` |',
        "Number 2 of 2 by MACs, 0.00 points below the run's most accurate, which takes 3k MACs.",
        "| test accuracy | 75.00 % (the run's evaluation) |",
        "| validation accuracy | not measured |",
        "| 1k | 10 | 50.00 % |  |\n| **3k** | **30** | **75.00 %** | **this network** |",
        "![Test accuracy over MACs](curve.svg)",
        "torch.zeros(1, 1, 8, 8, dtype=torch.uint8)",
        "cat, dog",
        "fedfeast verify",
    ):
        assert part in card, part
    assert "never trained" not in card
    assert "Other formats" not in card


def test_statistics_of_clients_are_called_theirs() -> None:
    card = write_card({**MANIFEST, "calibration": {"by": "clients", "sha256": "cd" * 32}}, CURVE)
    assert "from sums that the run's clients gave (sha256 cdcdcdcdcdcd...)" in card


def test_a_searched_and_untrained_network_and_its_exports_are_said() -> None:
    exports = {
        "model.onnx": {"kind": "onnx", "input": "uint8", "opset": 17, "largest_difference": 3e-6},
        "model.int8.onnx": {
            "kind": "int8",
            "input": "uint8",
            "opset": 17,
            "test_accuracy": 0.74,
            "accuracy_cost": 0.01,
        },
    }
    latency = {"median_ms": 1.234, "repeats": 30, "device": "a phone", "threads": 2}
    changed = {"name": "2k", "macs": 2000, "cached": False, "untrained_share": 0.2, "exports": exports}
    card = write_card({**MANIFEST, **changed, "latency": latency, "class_names": list(map(str, range(100)))}, CURVE)
    for part in (
        "20.0 % of this network's weights were never trained",
        "searched for after training",
        "| 1k | 10 | 50.00 % |  |\n| **2k** | **30** | **75.00 %** | **this network** |\n| 3k |",
        "`model.onnx` | onnx; input uint8; opset 17; differs from torch by at most 3.0e-06",
        "test accuracy 74.00 %, 1.00 points below float32",
        "1.23 ms, median of 30 on a phone with 2 threads",
        "18, 19, ... (all in `manifest.json`)",
    ):
        assert part in card, part


def test_a_masked_network_is_said_to_be_one() -> None:
    masked = {"counted": "weights that are kept", "dense": {"macs": 9000, "parameters": 90}}
    card = write_card({**MANIFEST, "masked": masked}, CURVE)
    assert "| MACs of one inference | 3,000 kept, of 9,000 |\n| parameters | 30 kept, of 90 |" in card
    assert "**Note.** This is a masked network. Its MACs and parameters" in card
    assert "masked" not in write_card(MANIFEST, CURVE)


def test_a_run_without_a_curve() -> None:
    card = write_card(MANIFEST, ())
    assert "curve was not measured" in card
    assert "curve.svg" not in card


def test_the_picture_marks_this_network_and_has_the_same_bytes_each_time() -> None:
    picture = curve_picture(CURVE, MANIFEST)
    assert "this network" in picture
    assert "test accuracy (%)" in picture
    assert picture == curve_picture(CURVE, MANIFEST)
    assert colour_of(0) in picture, "one palette for all pictures"
    assert colour_of("warm") in picture


def test_figures_before_rounding_are_called_so() -> None:
    sources = dict.fromkeys(("test", "validation"), "examples that clients kept back, before rounding to float16")
    rounded = {"weights": "float16", "rounding_difference": 0.0123, "accuracy_from": sources}
    card = write_card({**MANIFEST, **rounded, "validation_accuracy": 0.5, "samples_from": "drawn"}, CURVE)
    for part in (
        f"| accuracy | 75.00 % ({sources['test']}) |\n| validation accuracy | 50.00 % ({sources['test']}) |",
        "120 bytes, rounded to float16 (outputs of the samples moved by at most 1.2e-02); the network computes in",
        "`samples.safetensors` again. These are drawn.",
    ):
        assert part in card, part
    assert "120 bytes, float32 |" in write_card(MANIFEST, CURVE)


def test_the_card_of_a_ladder() -> None:
    smaller = {**MANIFEST, "name": "1k", "macs": 1000, "parameters": 10, "bytes": 40, "test_accuracy": 0.5}
    exports = {"model.onnx": {"kind": "onnx"}}
    ladder = {"01-1k": {**smaller, "exports": exports}, "02-3k": {**MANIFEST, "exports": exports}}
    card = write_ladder_card(ladder)
    for part in (
        "# digits classifiers of 1k to 3k MACs",
        "2 networks of the federated run `mine`: recipe `digits`, method `feast`, data `digits`, seed 3, round 7;",
        "| folder | MACs | parameters | bytes of the weights | test accuracy |",
        "| [01-1k](01-1k/README.md) | 1,000 | 10 | 40 | 50.00 % |\n| [02-3k](02-3k/README.md) | 3,000 |",
        "Test accuracy: the run's evaluation.",
        "Every folder also holds `model.onnx`.",
        'load("path/of/this/folder", max_macs=1000)',
        "`fedfeast serve FOLDER`",
        "`fedfeast verify FOLDER`",
    ):
        assert part in card, part
    assert "float16" not in card
    rounded = {"weights": "float16", "rounding_difference": 0.01}
    card = write_ladder_card({folder: {**one, **rounded, "exports": {}} for folder, one in ladder.items()})
    assert "Weights are rounded to float16 (outputs of the samples moved by at most 1.0e-02); the network" in card
    assert "Every folder" not in card
    card = write_ladder_card({folder: {**one, "price": 7 + one["macs"]} for folder, one in ladder.items()})
    assert "| folder | MACs | MACs that budgets are compared with | parameters |" in card
    assert "| 1,000 | 1,007 | 10 |" in card
    assert "max_macs=1007)" in card
    card = write_ladder_card({"01-1k": ladder["01-1k"]})
    assert card.startswith("# digits classifiers of 1k MACs\n\nA network of the federated run `mine`")
