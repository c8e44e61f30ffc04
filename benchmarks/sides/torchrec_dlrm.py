"""One rank of TorchRec's side of a DLRM: tables sharded by rows, Adagrad fused into the backward pass.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=… PYTHON torchrec_dlrm.py ROWS,ROWS,… DIM BATCH STEPS

Rank 0 prints a JSON line: milliseconds of a step, those of the processors of all ranks, and the memory of a rank.
"""

import json
import resource
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan

DENSE, WARM = 13, 3


class Dlrm(torch.nn.Module):
    """The same layers as the Keras program has."""

    def __init__(self, rows: list[int], dim: int) -> None:
        super().__init__()
        self.names = [f"c{number}" for number in range(len(rows))]
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=f"table_{name}", embedding_dim=dim, num_embeddings=count, feature_names=[name],
                    pooling=PoolingType.SUM,
                )
                for name, count in zip(self.names, rows, strict=True)
            ],
            device=torch.device("meta"),
        )  # fmt: skip
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        self.bottom = torch.nn.Sequential(linear(DENSE, 128), relu(), linear(128, dim), relu())
        self.top = torch.nn.Sequential(linear(dim + (1 + len(rows)) ** 2, 128), relu(), linear(128, 1))

    def forward(self, dense: torch.Tensor, features: KeyedJaggedTensor) -> torch.Tensor:
        """Return the scores of a batch."""
        bottom, found = self.bottom(dense), self.tables(features).to_dict()
        vectors = torch.stack([bottom, *(found[name] for name in self.names)], dim=1)
        dots = (vectors @ vectors.transpose(1, 2)).reshape(len(dense), -1)
        return self.top(torch.cat([bottom, dots], dim=1)).squeeze(1)


def main(rows: list[int], dim: int, batch: int, steps: int) -> None:
    """Run the rank."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Dlrm(rows, dim)
    _apply_optimizer_in_backward(torch.optim.Adagrad, model.tables.parameters(), {"lr": 0.01, "eps": 1e-7})
    sharder = EmbeddingBagCollectionSharder()
    placed = {f"table_{name}": row_wise(compute_kernel="fused") for name in model.names}
    plan = construct_module_sharding_plan(
        model.tables, placed, sharder=sharder, local_size=world, world_size=world, device_type="cpu"
    )
    parallel = DistributedModelParallel(
        model, device=torch.device("cpu"), env=ShardingEnv.from_process_group(dist.group.WORLD),
        plan=ShardingPlan({"tables": plan}), sharders=[sharder],
    )  # fmt: skip
    dense = [value for name, value in parallel.named_parameters() if "tables" not in name]
    optimizer = torch.optim.Adagrad(dense, lr=0.01, eps=1e-7)
    draw = np.random.default_rng(rank)
    lengths, wall, processor = torch.ones(len(rows) * batch, dtype=torch.int32), [], []
    for _ in range(WARM + steps):
        ids = np.concatenate([np.floor(size ** draw.random(batch)).astype(np.int64) - 1 for size in rows])
        numbers = torch.from_numpy(draw.standard_normal((batch, DENSE)).astype(np.float32))
        clicks = torch.from_numpy(draw.integers(0, 2, batch).astype(np.float32))
        features = KeyedJaggedTensor(keys=model.names, values=torch.from_numpy(ids), lengths=lengths)
        began = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(parallel(numbers, features), clicks)
        loss.backward()
        optimizer.step()
        loss.item()
        wall.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    own = torch.tensor([np.median(wall[WARM:]), np.median(processor[WARM:])], dtype=torch.float64)
    ranks = [torch.zeros_like(own) for _ in range(world)]
    dist.all_gather(ranks, own)
    if rank == 0:
        print(json.dumps({
            "step_ms": round(1000 * float(own[0]), 1),
            "processor_ms": round(1000 * float(sum(one[1] for one in ranks)), 1),
            "gb_per_rank": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(list(map(int, sys.argv[1].split(","))), *map(int, sys.argv[2:5]))
