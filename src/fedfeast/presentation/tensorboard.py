"""The training history as TensorBoard events, an option of the report."""

from collections.abc import Sequence
from pathlib import Path

from fedfeast.errors import InvalidInput
from fedfeast.runs import Run


def write_events(runs: Sequence[Run], folder: Path) -> None:
    """Write every run's losses, validation scores, sizes and learning rate as events below the folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InvalidInput("--tensorboard needs the tensorboard package: pip install 'fedfeast[track]'.") from error
    for run in runs:
        with SummaryWriter(str(folder / run.folder.path.name)) as writer:
            for row in run.folder.metrics():
                values = {f"loss/{role}": loss for role, loss in row["losses"].items()}
                values["learning rate"] = row["learning_rate"]
                if "validation_score" in row:
                    values["validation population score"] = row["validation_score"]
                for vector, score in row.get("validation_scores", {}).items():
                    values[f"validation population score/{vector}"] = score
                for size in row.get("validation_sizes", []):
                    values[f"validation by size/{size['name']}"] = size["value"]
                for name, value in values.items():
                    writer.add_scalar(name, value, row["round"])
