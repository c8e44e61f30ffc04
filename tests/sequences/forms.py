"""Trainings in all forms of the loss and of parallelism, whose results do not depend on the number of ranks."""

from pathlib import Path

import numpy as np

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.params import SequenceParams
from xmc_tf.sequences.data.batches import HeldOut, TrainBatches
from xmc_tf.sequences.data.folder import PreparedFolder
from xmc_tf.sequences.model import ranking, softmax
from xmc_tf.sequences.model.ranking import Ranker, best_items
from xmc_tf.sequences.model.recommender import Recommender
from xmc_tf.sequences.training import train_recommender

GLOBAL_BATCH = 8
_SAMPLED = {"model": "sasrec", "loss": "sampled", "negatives": 40, "weight_decay": 0.01}
FORMS = {
    "full": {"model": "bert4rec"},
    "full, data parallel": {"model": "bert4rec", "model_parallel": False},
    "sampled": _SAMPLED,
    "sampled, rows": {**_SAMPLED, "route": "rows"},
    "sampled, data parallel": {**_SAMPLED, "model_parallel": False},
}


def run_forms(world, data, folder, steps, names):
    """Return losses, metrics and best items of trainings, by their names.

    Args:
        world: the ranks.
        data: folder of prepared interactions.
        folder: folder for checkpoints, from which a training resumes.
        steps: number of steps.
        names: names of ``FORMS``.
    """
    data, found = PreparedFolder(data), {}
    softmax.CHUNK_BYTES, ranking.CHUNK_BYTES, before = 1 << 10, 1 << 10, (softmax.CHUNK_BYTES, ranking.CHUNK_BYTES)
    for name in names:
        params = SequenceParams(
            embed_dim=8, max_len=6, sliding_step=3, n_layers=1, dropout=0.0, max_steps=steps, eval_steps=3, seed=5,
            per_device_train_batch_size=GLOBAL_BATCH // world.size, max_grad_norm=0.5, **FORMS[name],
        )  # fmt: skip
        model = Recommender(CollectiveStrategy(world), params, data.nr_items, data.item_counts())
        parts = data.parts()
        batches = TrainBatches(parts, model.shape, 3, GLOBAL_BATCH, 5, world.rank, world.size)
        held_out = HeldOut(parts, model.shape, "validation", 16, world.rank, world.size)
        ranker = Ranker(model)
        result = train_recommender(
            model, batches, Path(folder) / name, lambda ranker=ranker, held_out=held_out: ranker.metrics(held_out)
        )
        inputs, _ = next(iter(held_out))
        best = best_items(model.table, model.last_vectors(inputs), 5)
        found[name] = {
            "losses": result.losses,
            "metrics": result.validations[-1][1],
            "items": world.allgather_array(best.items.numpy()).tolist(),
            "scores": world.allgather_array(best.scores.numpy()).astype(np.float64).tolist(),
        }
    softmax.CHUNK_BYTES, ranking.CHUNK_BYTES = before
    return found
