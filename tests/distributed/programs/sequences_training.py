"""Train sequence models in all forms, and print losses, metrics and best items: the same on any number of ranks."""

import json
import sys
from pathlib import Path

import numpy as np

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.params import SequenceParams
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.sequences.data.batches import HeldOut, TrainBatches
from xmc_tf.sequences.data.folder import Prepared
from xmc_tf.sequences.model import chunks, ranking
from xmc_tf.sequences.model.ranking import Ranker, best_items
from xmc_tf.sequences.model.recommender import Recommender
from xmc_tf.sequences.training.training import train_recommender

GLOBAL_BATCH = 8
FORMS = {
    "bert4rec": {"model": "bert4rec"},
    "bert4rec, data parallel": {"model": "bert4rec", "model_parallel": False},
    "sampled": {"model": "sasrec", "loss": "sampled", "negatives": 40, "weight_decay": 0.01},
    "sampled, rows": {"model": "sasrec", "loss": "sampled", "negatives": 40, "weight_decay": 0.01, "route": "rows"},
    "sampled, data parallel": {
        "model": "sasrec", "loss": "sampled", "negatives": 40, "weight_decay": 0.01, "model_parallel": False,
    },
}  # fmt: skip


def main():
    data, folder, steps = Prepared(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    chosen = sys.argv[4:] or list(FORMS)
    world = choose_communicator()
    chunks.CHUNK_BYTES = ranking.CHUNK_BYTES = 1 << 10  # several chunks
    strategy = CollectiveStrategy(world)
    found = {}
    for number, name in enumerate(chosen):
        params = SequenceParams(
            embed_dim=8, max_len=6, sliding_step=3, dropout=0.0, max_steps=steps, eval_steps=3, seed=5,
            per_device_train_batch_size=GLOBAL_BATCH // world.size, max_grad_norm=0.5, **FORMS[name],
        )  # fmt: skip
        strategy.tables.clear()
        model = Recommender(strategy, params, data.nr_items, data.item_counts())
        parts = data.parts()
        batches = TrainBatches(parts, model.shape, 3, GLOBAL_BATCH, 5, world.rank, world.size)
        held_out = HeldOut(parts, model.shape, "validation", 16, world.rank, world.size)
        ranker = Ranker(model)
        result = train_recommender(
            model, batches, folder / f"{number}", lambda ranker=ranker, held_out=held_out: ranker.metrics(held_out)
        )
        inputs, _ = next(iter(held_out))
        best = best_items(model.table, model.last_vectors(inputs), 5)
        found[name] = {
            "steps": result.steps,
            "losses": result.losses,
            "validations": result.validations,
            "items": world.allgather_array(best.items.numpy()).tolist(),
            "scores": np.round(world.allgather_array(best.scores.numpy()), 4).tolist(),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
