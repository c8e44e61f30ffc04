from dataclasses import dataclass
from typing import ClassVar

from xmc_tf.params import choices
from xmc_tf.params.base import Params
from xmc_tf.params.values import MisfitError, param_field


@dataclass(frozen=True)
class MatcherParams(Params):
    """Options for fine-tuning the encoder and the label head on one level of the tree."""

    pecos_name: ClassVar[str] = "pecos.xmc.xtransformer.matcher###TransformerMatcher.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("save_emb_dir",)

    model_shortcut: str = param_field(
        "bert-base-cased", help="pre-trained encoder: a folder, or a name on the Hugging Face hub"
    )
    negative_sampling: str = param_field(
        "all", parse=choices.matcher_negatives,
        help="negative sampling: tfn, man, tfn+man, or all (every node; only the last level is trained)",
    )  # fmt: skip
    loss_function: str = param_field("cross-entropy", choices=choices.LOSSES, help="loss of the label head")
    bootstrap_method: str = param_field(
        "centroid", choices=choices.BOOTSTRAPS, help="initial weights of the label head"
    )
    lr_schedule: str = param_field("linear", choices=choices.SCHEDULES, help="learning-rate schedule")
    threshold: float = param_field(0.1, low=0, help="no effect: the label head keeps all weights")
    hidden_dropout_prob: float = param_field(0.1, low=0, below=1, help="dropout rate of the encoder's hidden layers")
    batch_size: int = param_field(
        32, low=1, help="documents (or windows of long ones) per step and rank; larger is faster and takes more memory"
    )
    batch_gen_workers: int = param_field(4, low=0, help="no effect: batches are made by TensorFlow's own threads")
    max_active_matching_labels: int | None = param_field(
        None, low=1,
        help="maximum number of candidates per document, which limits time and memory; if there are more, a random "
        "sample is used (default: no limit)",
    )  # fmt: skip
    max_num_labels_in_gpu: int = param_field(
        65536, low=1, help="no effect: the label head is sharded over the ranks and stays on the device"
    )
    max_steps: int = param_field(0, low=-1, help="number of training steps; 0 or less: use num_train_epochs")
    max_no_improve_cnt: int = param_field(
        -1, low=-1, help="stop early after this many validations without improvement; 0 or less: never"
    )
    num_train_epochs: int = param_field(3, low=1, help="number of training epochs; max_steps overrides it")
    gradient_accumulation_steps: int = param_field(
        1, low=1, help="number of batches whose gradients are accumulated for one step"
    )
    weight_decay: float = param_field(0.0, low=0, help="weight decay of AdamW")
    max_grad_norm: float = param_field(
        1.0, above=0, help="maximum gradient norm; larger gradients are scaled down to it"
    )
    learning_rate: float = param_field(
        1e-4, above=0, help="peak learning rate of the encoder; too large makes training unstable"
    )
    adam_epsilon: float = param_field(1e-8, above=0, help="epsilon of AdamW")
    warmup_steps: int = param_field(
        0, low=0, help="number of steps in which the learning rate rises from 0 to its peak"
    )
    logging_steps: int = param_field(50, low=1, help="log every this many steps")
    save_steps: int = param_field(250, low=1, help="save a checkpoint and validate every this many steps")
    cost_sensitive_ranker: bool = param_field(
        False,
        help="with bootstrap_method linear, weight each cluster by the number of the document's labels in it, as "
        "weighted-linear does; no effect with other methods",
    )  # fmt: skip
    pre_tokenize: bool = param_field(True, help="no effect: documents are always tokenized before training")
    pre_tensorize_labels: bool = param_field(True, help="no effect: label batches are always made before training")
    use_gpu: bool = param_field(True, help="use GPUs if there are any")
    eval_by_true_shorlist: bool = param_field(
        False, help="validate with the children of the true parents as candidates"
    )
    checkpoint_dir: str = param_field("", help="no effect: checkpoints are kept in the work folder")
    cache_dir: str = param_field("", help="cache of downloaded encoders; empty: the default of Hugging Face")
    init_model_dir: str = param_field("", help="folder of an encoder or matcher to load instead of model_shortcut")
    # Options that PECOS does not have.
    pooling: str = param_field(
        "auto", choices=choices.POOLINGS,
        help="how token vectors become one embedding; auto: as the encoder was trained",
    )  # fmt: skip
    prompt: str | None = param_field(
        None,
        help="text to put before each document and label name (default: the encoder's own for documents; empty: none)",
    )  # fmt: skip
    prompt_name: str | None = param_field(
        None, help="name of the encoder's prompt to use, of those in config_sentence_transformers.json"
    )
    train_layers: str = param_field(
        "all", parse=choices.train_layers,
        help="layers of the encoder to train: all, half, or a number of upper layers; the output of the others and of "
        "the embeddings is computed once, into the work folder, which saves time",
    )  # fmt: skip
    lora_rank: int = param_field(
        0, low=0,
        help="rank of adapters (LoRA), which are trained instead of the encoder's weights and added to them at the "
        "end; 0: train the weights",
    )  # fmt: skip
    lr_cycles: int = param_field(
        1, low=1, help="number of times that cosine_with_restarts falls from the peak to 0; 1: it does not restart"
    )
    head_learning_rate: float | None = param_field(
        None, above=0,
        help="peak learning rate of the label head (default: 2.5 times learning_rate for cross-entropy, else "
        "learning_rate)",
    )  # fmt: skip
    normalize_vectors: bool | None = param_field(
        None, help="scale embeddings to length 1 before the label head (default: only for cross-entropy)"
    )
    logit_scale: float | None = param_field(
        None, above=0, help="factor to multiply embeddings by before the label head (default: 20 for length 1, else 1)"
    )
    token_budget: int | None = param_field(
        None, low=1, help="maximum number of tokens per step and rank, with padding (default: only batch_size limits)"
    )
    mixed_precision: str = param_field(
        "auto", choices=choices.PRECISIONS,
        help="half-precision format of the encoder's matrix products in training; auto: bf16 where it is faster "
        "(Intel processors with AMX, AMD processors with AVX512-BF16, GPUs of compute capability 8.0 or higher)",
    )  # fmt: skip
    head_precision: str = param_field(
        "fp32", choices=choices.HEAD_PRECISIONS,
        help="number format of the label head: fp32, or bf16 for a million nodes and more, which takes 2 bytes per "
        "weight in training instead of 16; only with negative_sampling all and without gradient accumulation",
    )  # fmt: skip
    xla: bool = param_field(False, help="compile the encoder with XLA")
    route: str = param_field(
        "auto", choices=choices.ROUTES, help="what ranks exchange: rows of the label head, or embeddings (features)"
    )
    wire: str = param_field("fp32", choices=choices.WIRES, help="number format of what ranks exchange")

    @property
    def normalizes(self) -> bool:
        """True if embeddings are scaled to length 1 before the label head."""
        return self.loss_function == "cross-entropy" if self.normalize_vectors is None else self.normalize_vectors

    @property
    def scale(self) -> float:
        """Factor by which embeddings are multiplied before the label head."""
        return (20.0 if self.normalizes else 1.0) if self.logit_scale is None else self.logit_scale

    @property
    def head_rate(self) -> float:
        """Peak learning rate of the label head."""
        if self.head_learning_rate is not None:
            return self.head_learning_rate
        return self.learning_rate * (2.5 if self.loss_function == "cross-entropy" else 1.0)

    @property
    def bootstrap(self) -> str:
        """Method that computes the label head's initial weights; with ``cost_sensitive_ranker``, "linear" becomes
        "weighted-linear".
        """
        weighted = self.bootstrap_method == "linear" and self.cost_sensitive_ranker
        return "weighted-linear" if weighted else self.bootstrap_method

    @property
    def trains_head_in_place(self) -> bool:
        """True if the label head is bfloat16 and is updated while its gradients are computed."""
        return self.head_precision == "bf16"

    def check_together(self) -> None:
        """Check that an encoder is given, and that the other options can be combined with a bfloat16 head."""
        if self.trains_head_in_place:
            for name, needed in (("negative_sampling", "all"), ("gradient_accumulation_steps", 1)):
                if getattr(self, name) != needed:
                    raise MisfitError(
                        name, "does not fit head_precision bf16", expected=str(needed),
                        received=str(getattr(self, name)),
                    )  # fmt: skip
        if self.prompt is not None and self.prompt_name is not None:
            raise MisfitError(
                "prompt_name", "does not go with prompt", expected="one of them", received=self.prompt_name
            )
        if not self.model_shortcut and not self.init_model_dir:
            raise MisfitError(
                "model_shortcut", "is empty", expected="the name or the folder of an encoder", received='""'
            )


@dataclass(frozen=True)
class MatcherPredParams(Params):
    """Prediction options of a fine-tuned level."""

    pecos_name: ClassVar[str] = "pecos.xmc.xtransformer.matcher###TransformerMatcher.PredParams"

    only_topk: int = param_field(20, low=1, help="number of best nodes kept")
    post_processor: str = param_field(
        "noop", choices=choices.POST_PROCESSORS,
        help="function applied to scores before they are combined with their parent's",
    )  # fmt: skip
    ensemble_method: str | None = param_field(
        None, choices=choices.ENSEMBLES,
        help="how to combine the scores of the label head and the rankers (default: root_average if the head was "
        "trained with cross-entropy, else the rankers' scores alone); in PECOS's parameter files, transformer-only "
        "applies only to the scores during fine-tuning, and the rankers alone score the final labels",
    )  # fmt: skip
    truncate_length: int = param_field(
        128, low=2, help="maximum number of tokens that the encoder reads at once; larger is slower"
    )
    # Options that PECOS does not have.
    long_texts: str = param_field(
        "truncate", choices=choices.LONG_TEXTS,
        help="what to do with longer texts: ignore the rest (truncate), or read them in several windows of "
        "truncate_length tokens and use the mean or the max of the windows' embeddings",
    )  # fmt: skip
    max_windows: int = param_field(
        16, low=1, help="maximum number of windows per document (the rest is ignored); larger is slower on long texts"
    )
