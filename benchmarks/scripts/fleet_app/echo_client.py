"""A node that trains nothing and loads no torch: what is left is what a round costs beside training."""

import json
import time

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def introduce(message: Message, context: Context) -> Message:
    terms = json.loads(str(message.content.config_records["terms"]["json"]))
    content = {
        "name": context.node_config["name"],
        "budget_macs": context.node_config["budget-macs"],
        "num_examples": 500,
        "held_classes": [0],
        "version": terms["version"],
        "space": terms["space"],
    }
    return Message(RecordDict({"introduction": ConfigRecord({"json": json.dumps(content)})}), reply_to=message)


@app.train()
def echo(message: Message, context: Context) -> Message:
    report = {"num_examples": 500, "num_steps": 1, "losses": {"at": [time.time(), 1]}}
    reply = RecordDict({"report": ConfigRecord({"json": json.dumps(report)})})
    sent = message.content.array_records["weights"]["values"]
    # Every node moves by another length: Flower stores equal chunks once, and a clipped mean needs changes.
    factor = 1 + 0.01 * (1 + float(str(context.node_config["step"])))
    values = np.frombuffer(sent.data, dtype=np.float32) * np.float32(factor)
    reply["weights"] = ArrayRecord({"values": Array(sent.dtype, sent.shape, sent.stype, values.tobytes())})
    return Message(reply, reply_to=message)
