from itertools import groupby

import numpy as np
import pytest
import torch
from tiny import CACHE, NETWORK

from fedfeast.data import Batch
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.engines.graphs.context import GraphContext, Precision
from fedfeast.engines.graphs.programs import Exchange
from fedfeast.engines.graphs.slots import Slot
from fedfeast.federation import Client, LocalSgd
from fedfeast.methods import Feast
from fedfeast.randomness import named_generator

CPU = torch.device("cpu")
SGD = LocalSgd(5e-3, 1.0, momentum=0.9)
RATE = 0.05
BATCH = 8


def drawn_batch(generator: np.random.Generator) -> Batch:
    """Return a whole batch, noise in all its rows."""
    return Batch(
        torch.from_numpy(generator.normal(size=(BATCH, 1, 8, 8))).float(),
        torch.from_numpy(generator.integers(0, 10, BATCH)),
        torch.from_numpy(generator.integers(0, 10, BATCH)),
        torch.tensor(0.3),
    )


def lane_losses(slot: Slot) -> list[tuple[str, object]]:
    return [one for lane in slot.lanes for one in lane.loss_programs()]


# Fused, students on half are enough: the teacher has whole batches, and the interpreter is slow.
@pytest.mark.parametrize(("fused", "part"), [(False, 1.0), (False, 0.5), (True, 0.5)])
def test_steps_of_a_few_rows_are_those_of_the_eager_engine(
    fused: bool, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fused:
        pytest.importorskip("triton")
        monkeypatch.setattr("fedfeast.engines.graphs.kernels.vectors.NORM_PROGRAMS", 4)  # the interpreter is slow
    method = Feast(NETWORK, CACHE, student_batch=part)
    precision, shape = Precision(torch.float32, torch.float32), (BATCH, 1, 8, 8)
    context = GraphContext(method, SGD, precision, CPU, shape, fused, short_batches=True)
    record = BatchRecord(shape, torch.float32)
    slot, eager = Slot(context, record, 0), ClientSlot(method, torch.float32, CPU)
    client = method.assign(Client(0, "client", 1e12, 10))
    flat = NETWORK.initial_weights(named_generator(0, "weights"))
    slot.load(flat, client)
    eager.load(client, client.slice_map.gather(flat))
    generator = named_generator(0, "batches")
    batches, sizes = [drawn_batch(generator) for _ in range(3)], [5, None, 1]
    row = torch.zeros(record.num_bytes, dtype=torch.uint8)
    passes = named_generator(0, "passes")
    for step, (batch, rows) in enumerate(zip(batches, sizes, strict=True)):
        places = record.batch(row)
        for place, values in ((places.inputs, batch.inputs), (places.labels_a, batch.labels_a)):
            place.copy_(values)
        places.labels_b.copy_(batch.labels_b)
        places.mix.copy_(batch.mix)
        slot.step(method.passes(client, step, passes), row, context.positions(client)[0], RATE, rows)
    short = [batch.leading(rows or BATCH) for batch, rows in zip(batches, sizes, strict=True)]
    losses = train_client(method, client, eager, short, SGD, RATE, named_generator(0, "passes"))
    got = client.slice_map.gather(slot.weights[: NETWORK.layout.size])
    change = (eager.weights - client.slice_map.gather(flat)).norm()
    assert float((got - eager.weights).norm() / change) < 1e-4
    totals = [float(total) for lane in slot.lanes for role, total in lane.loss_totals() if role == "teacher"]
    assert len(totals) == 2, "of the full batch and of the others"
    assert sum(totals) == pytest.approx(float(torch.stack(losses["teacher"]).sum()), rel=1e-5)
    roles = {role: len(list(totals)) for role, totals in groupby(sorted(role for role, _ in lane_losses(slot)))}
    assert roles == ({"student": 2, "teacher": 1} if fused or part == 1 else {"teacher": 1}), "captured for full ones"
    # Where layers are fused, short batches are served by what is captured for full ones.
    assert all((lane._short._programs == {}) == fused for lane in slot.lanes)


def test_what_a_pass_leaves_outlasts_the_next_pass_of_its_lane() -> None:
    context = GraphContext(
        Feast(NETWORK, CACHE), SGD, Precision(torch.float32, torch.float32), CPU, (4, 1, 8, 8), False
    )
    record = BatchRecord(context.input_shape, torch.float32)
    lane = Slot(context, record, 0).lanes_for(1)[0]
    exchange = Exchange.of(((4, 10),), torch.float32, CPU)
    exchange.outputs[0].copy_(torch.arange(40.0).view(4, 10))
    exchange.gradients[0].fill_(torch.nan)
    left = lane._short.measure("teacher", exchange, 3, None)
    assert left is not None
    expected = left.clone()
    exchange.outputs[0].fill_(torch.nan)
    assert torch.equal(left, expected)
    assert len(left) == 3
    (gradient,) = exchange.gradients
    assert gradient[:3].any(dim=1).all()
    assert not gradient[3:].any(), "what does not count has no gradient"
