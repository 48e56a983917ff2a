import numpy as np
import pytest
import torch
from tiny import CACHE, NETWORK

from fedfeast.data import Batch
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.engines.graphs.context import GraphContext, Precision
from fedfeast.engines.graphs.slots import Slot
from fedfeast.federation import Client, LocalSgd
from fedfeast.methods import Feast
from fedfeast.randomness import named_generator

CPU = torch.device("cpu")
SGD = LocalSgd(5e-3, 1.0, momentum=0.9)
RATE = 0.05
BATCH = 128  # so many that fused layers would leave gradients in parts, and rounds them up to another size


def drawn_batch(generator: np.random.Generator) -> Batch:
    """Return a whole batch, noise in all its rows."""
    return Batch(
        torch.from_numpy(generator.normal(size=(BATCH, 1, 8, 8))).float(),
        torch.from_numpy(generator.integers(0, 10, BATCH)),
        torch.from_numpy(generator.integers(0, 10, BATCH)),
        torch.tensor(0.3),
    )


@pytest.mark.parametrize("fused", [False, True])
def test_steps_of_a_few_rows_are_those_of_the_eager_engine(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fused:
        pytest.importorskip("triton")
        monkeypatch.setattr("fedfeast.engines.graphs.kernels.vectors.NORM_PROGRAMS", 4)  # the interpreter is slow
    method = Feast(NETWORK, CACHE)
    precision, shape = Precision(torch.float32, torch.float32), (BATCH, 1, 8, 8)
    context = GraphContext(method, SGD, precision, CPU, shape, fused, short_batches=True)
    record = BatchRecord(shape, torch.float32)
    slot, eager = Slot(context, record, 0), ClientSlot(method, torch.float32, CPU)
    client = method.assign(Client(0, "client", 1e12, 10))
    flat = NETWORK.initial_weights(named_generator(0, "weights"))
    slot.load(flat, client)
    eager.load(client, client.slice_map.gather(flat))
    generator = named_generator(0, "batches")
    batches, sizes = [drawn_batch(generator) for _ in range(3)], [6, 1, 6]
    row = torch.zeros(record.num_bytes, dtype=torch.uint8)
    passes = named_generator(0, "passes")
    for step, (batch, rows) in enumerate(zip(batches, sizes, strict=True)):
        places = record.batch(row)
        for place, values in ((places.inputs, batch.inputs), (places.labels_a, batch.labels_a)):
            place.copy_(values)
        places.labels_b.copy_(batch.labels_b)
        places.mix.copy_(batch.mix)
        slot.step(method.passes(client, step, passes), row, context.positions(client)[0], RATE, rows)
    short = [batch.leading(rows) for batch, rows in zip(batches, sizes, strict=True)]
    losses = train_client(method, client, eager, short, SGD, RATE, named_generator(0, "passes"))
    got = client.slice_map.gather(slot.weights[: NETWORK.layout.size])
    change = (eager.weights - client.slice_map.gather(flat)).norm()
    assert float((got - eager.weights).norm() / change) < 1e-4
    assert context.num_graphs == 0
    totals = {role: float(total) for lane in slot.lanes for role, total in lane.loss_totals() if role == "teacher"}
    assert totals["teacher"] == pytest.approx(float(torch.stack(losses["teacher"]).sum()), rel=1e-5)
    if fused:
        largest = context.blueprint(context.largest).plan.places
        assert max(place.parts for place in largest.values()) > 1
        assert {place.parts for place in context.whole_blueprint(context.largest).plan.places.values()} == {1}


def test_programs_are_kept_for_networks_that_come_again() -> None:
    context = GraphContext(
        Feast(NETWORK, CACHE), SGD, Precision(torch.float64, torch.float64), CPU, (4, 1, 8, 8), False
    )
    blueprint = context.whole_blueprint(context.largest)
    assert blueprint is context.blueprint(context.largest), "without fused layers the two are the same"
    context.fused = True
    fresh = context.whole_blueprint(context.largest)
    assert context.whole_blueprint(context.largest) is fresh
    context.forget_strangers()
    assert context.whole_blueprint(context.largest) is fresh
