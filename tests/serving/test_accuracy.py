import torch

from fedfeast.data import Examples
from fedfeast.serving.accuracy import ACCURACY_BATCH, measure_accuracy


def test_the_share_of_right_answers_over_several_batches() -> None:
    number = 2 * ACCURACY_BATCH + 3
    labels = torch.arange(number) % 4
    examples = Examples(labels.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2), labels)
    sizes = []

    def predict(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        guessed = images[:, 0, 0, 0].long().clamp(max=2)  # class 3 is never guessed
        return torch.nn.functional.one_hot(guessed, 4).float()

    assert measure_accuracy(predict, examples) == float((labels < 3).double().mean())
    assert sizes == [ACCURACY_BATCH, ACCURACY_BATCH, 3]
