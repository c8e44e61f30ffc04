"""Parameters of sequence models, which TOML files store as one flat list of keys."""

from dataclasses import dataclass
from pathlib import Path

from xmc_tf.params.base import Params
from xmc_tf.params.choices import SCHEDULES, WIRES
from xmc_tf.params.config_files import PREPARE, read_toml
from xmc_tf.params.values import MisfitError, param_field

SEQUENCE_MODELS = ("bert4rec", "sasrec")


@dataclass(frozen=True)
class SequenceParams(Params):
    """Training parameters of a sequence model. Batch sizes are per rank."""

    retired = ("streaming", "mixed_precision", "jit_xla", "use_tpu", "write_format", "steps_per_execution")

    model: str = param_field(
        "bert4rec", choices=SEQUENCE_MODELS,
        help="bert4rec: masked items are predicted from both sides; sasrec: each item from those before it",
    )  # fmt: skip
    # Data.
    data_dir: str = param_field("data", help="folder of prepared interactions")
    train_data: str = param_field("part_*", help="parts of data_dir to train on, with wildcards")
    eval_data: str = param_field("part_*", help="parts of data_dir whose users are evaluated, with wildcards")
    max_len: int = param_field(
        50, low=2, high=10_000, help="maximum length of a sequence: the model sees only the last items"
    )
    sliding_step: int = param_field(
        25, low=1, help="number of items from one sequence of a user to the next, at most max_len; smaller repeats more"
    )
    num_workers: int = param_field(2, low=1, high=64, help="number of threads that prepare batches in advance")
    # Model.
    embed_dim: int = param_field(64, low=1, high=16_384, help="width of an item's embedding")
    n_heads: int = param_field(2, low=1, help="number of attention heads; must divide embed_dim")
    n_layers: int = param_field(2, low=1, high=64, help="number of transformer layers")
    mask_prob: float = param_field(0.2, low=0.0, below=1.0, help="probability of masking an item; bert4rec only")
    dropout: float = param_field(0.1, low=0.0, below=1.0, help="dropout rate")
    # Loss.
    loss: str = param_field(
        "full", choices=("full", "sampled"), help="softmax over all items, or over a sample (faster beyond 100,000)"
    )
    negatives: int = param_field(
        2048, low=1, help="number of sampled items per step, shared by all ranks; only for loss sampled"
    )
    sampling: str = param_field(
        "log-uniform", choices=("log-uniform", "frequency"),
        help="distribution of the sample; the loss is corrected for it",
    )  # fmt: skip
    # Training.
    n_epochs: int = param_field(10, low=1, help="passes over the sequences")
    max_steps: int = param_field(0, low=0, help="number of training steps; 0: use n_epochs")
    learning_rate: float = param_field(1e-3, above=0.0, help="peak learning rate of Adam")
    lr_schedule: str = param_field("constant", choices=SCHEDULES, help="learning-rate schedule")
    lr_cycles: int = param_field(
        1, low=1, help="number of times that cosine_with_restarts falls from the peak to 0; 1: it does not restart"
    )
    warmup_steps: int = param_field(0, low=0, help="number of steps in which the learning rate rises from 0")
    weight_decay: float = param_field(0.0, low=0.0, help="weight decay, decoupled from the gradient as in AdamW")
    max_grad_norm: float = param_field(
        5.0, above=0.0, help="maximum gradient norm (larger gradients are scaled down to it)"
    )
    per_device_train_batch_size: int = param_field(128, low=1, help="number of sequences per step and rank")
    per_device_eval_batch_size: int = param_field(256, low=1, help="number of users per evaluation batch and rank")
    patience: int = param_field(
        3, low=0, help="stop early after this many evaluations without a better NDCG@10; 0: never"
    )
    eval_steps: int = param_field(0, low=0, help="steps between evaluations and checkpoints; 0: after each epoch")
    logging_steps: int = param_field(100, low=1, help="steps between log lines")
    seed: int = param_field(
        42, low=0, high=2**31 - 1, help="seed of initial values, order, masks, samples, and dropout"
    )
    # Ranks.
    model_parallel: bool = param_field(
        True, help="each rank holds a part of the item table; false: each holds all of it (data parallel)"
    )
    route: str = param_field(
        "features", choices=("features", "rows"),
        help="what ranks exchange for a sampled loss: the transformer's outputs (features), or sampled items (rows)",
    )  # fmt: skip
    wire: str = param_field("fp32", choices=WIRES, help="format of the numbers exchanged; fewer bits are less exact")
    # Output.
    model_dir: str = param_field("model", help="folder for the model; checkpoints are beside it, in model_dir.work")
    logdir: str | None = param_field(None, help="folder for TensorBoard's log files (default: none)")

    def check_together(self) -> None:
        """Check rules that involve several parameters."""
        if self.embed_dim % self.n_heads:
            raise MisfitError(
                "n_heads", "does not divide embed_dim", expected=f"a divisor of {self.embed_dim}",
                received=str(self.n_heads),
            )  # fmt: skip
        if self.sliding_step > self.max_len:
            raise MisfitError(
                "sliding_step", "is longer than max_len, so items between two sequences would be lost",
                expected=f"at most {self.max_len}", received=str(self.sliding_step),
            )  # fmt: skip
        if self.route == "rows" and self.loss == "full":
            raise MisfitError(
                "route", "does not fit loss = \"full\": every step would send the whole item table",
                expected="features", received="rows", fix='use loss = "sampled", or model_parallel = false',
            )  # fmt: skip


def load_sequence_params(path: str | Path) -> SequenceParams:
    """Read the parameters of a sequence model from a TOML file; missing keys keep their defaults."""
    content = read_toml(path)
    content.pop(PREPARE, None)  # of xmc-tf sequences prepare
    try:
        return SequenceParams.from_json(content)
    except MisfitError as misfit:
        raise misfit.found_in(path) from None
