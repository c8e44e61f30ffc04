"""One rank of TorchRec's side: the table sharded by rows, with the optimizer fused into the backward pass.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=… PYTHON torchrec_side.py FOLDER ROWS STEPS
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from two_towers import BATCH, DIM, HISTORY, RATE, TABLE, WORLD, batches, dense_kernel, initial_rows, take_turns


class Model(torch.nn.Module):
    """The model, without its table's values."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        config = EmbeddingBagConfig(
            name=TABLE, embedding_dim=DIM, num_embeddings=rows, feature_names=["history", "item"],
            pooling=PoolingType.SUM,
        )  # fmt: skip
        self.tables = EmbeddingBagCollection(tables=[config], device=torch.device("meta"))
        self.dense = torch.nn.Linear(DIM, DIM)
        with torch.no_grad():
            self.dense.weight.copy_(torch.from_numpy(dense_kernel().T))
            self.dense.bias.zero_()

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """Return the scores of a batch."""
        found = self.tables(features).to_dict()
        return (torch.relu(self.dense(found["history"])) * found["item"]).sum(1)


def main(folder: Path, rows: int, steps: int) -> None:
    """Run the rank."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = Model(rows)
    _apply_optimizer_in_backward(torch.optim.Adagrad, model.tables.parameters(), {"lr": RATE, "eps": 1e-10})
    sharder = EmbeddingBagCollectionSharder()
    of_tables = construct_module_sharding_plan(
        model.tables, {TABLE: row_wise(compute_kernel="fused")}, sharder=sharder, local_size=WORLD, world_size=WORLD,
        device_type="cpu",
    )  # fmt: skip
    parallel = DistributedModelParallel(
        model, device=torch.device("cpu"), env=ShardingEnv.from_process_group(dist.group.WORLD),
        plan=ShardingPlan({"tables": of_tables}), sharders=[sharder],
    )  # fmt: skip
    for shard in parallel.state_dict()[f"tables.embedding_bags.{TABLE}.weight"].local_shards():
        first = shard.metadata.shard_offsets[0]
        for low in range(0, len(shard.tensor), 4096):
            part = shard.tensor[low : low + 4096]
            part.copy_(torch.from_numpy(initial_rows(np.arange(first + low, first + low + len(part)))))
    dense = [value for name, value in parallel.named_parameters() if "dense" in name]
    optimizer = torch.optim.Adagrad(dense, lr=RATE, eps=1e-10)
    lengths = torch.tensor([HISTORY] * BATCH + [1] * BATCH, dtype=torch.int32)
    data = batches(rows, rank)

    def step() -> float:
        history, item, clicks = next(data)
        ids = torch.from_numpy(np.concatenate([history.reshape(-1), item.reshape(-1)]))
        features = KeyedJaggedTensor(keys=["history", "item"], values=ids, lengths=lengths)
        optimizer.zero_grad()
        scores = parallel(features)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.from_numpy(clicks))
        loss.backward()
        optimizer.step()
        return loss.item()

    take_turns(folder, "torchrec", rank, steps, step)


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
