"""Parameters of the encoder's fine-tuning on one level of the tree."""

from dataclasses import dataclass
from typing import ClassVar

from xmc_tf.params import choices
from xmc_tf.params.base import Params
from xmc_tf.params.values import MisfitError, knob


@dataclass(frozen=True)
class MatcherParams(Params):
    """How encoder and label head are fine-tuned on one level of the tree."""

    peer_name: ClassVar[str] = "pecos.xmc.xtransformer.matcher###TransformerMatcher.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("save_emb_dir",)

    model_shortcut: str = knob("bert-base-cased", help="pre-trained encoder: a name or a folder")
    negative_sampling: str = knob(
        "all",
        parse=choices.matcher_negatives,
        help="negatives: all nodes of the last level, no other being trained on then; or tfn, man or their sum",
    )
    loss_function: str = knob("cross-entropy", choices=choices.LOSSES, help="loss of the label head")
    bootstrap_method: str = knob("centroid", choices=choices.BOOTSTRAPS, help="where the label head begins")
    lr_schedule: str = knob("linear", choices=choices.SCHEDULES, help="course of the learning rate")
    threshold: float = knob(0.1, low=0, help="drop weights of the linear parts smaller than this")
    hidden_dropout_prob: float = knob(0.1, low=0, below=1, help="dropout inside the encoder")
    batch_size: int = knob(32, low=1, help="documents a step and device")
    batch_gen_workers: int = knob(4, low=0, help="threads that make batches ready")
    max_active_matching_labels: int | None = knob(
        None, low=1, help="most candidates a document, sampled where there are more; null for all"
    )
    max_num_labels_in_gpu: int = knob(65536, low=1, help="most labels whose head stays on the GPU")
    max_steps: int = knob(0, low=-1, help="steps of training; 0 or less to go by num_train_epochs")
    max_no_improve_cnt: int = knob(
        -1, low=-1, help="stop after so many validations without a gain; 0 or less for never"
    )
    num_train_epochs: int = knob(3, low=1, help="passes over the training data, unless max_steps is given")
    gradient_accumulation_steps: int = knob(1, low=1, help="batches whose gradients make one step")
    weight_decay: float = knob(0.0, low=0, help="decay of the weights")
    max_grad_norm: float = knob(1.0, above=0, help="longest gradient; longer ones are cut to it")
    learning_rate: float = knob(1e-4, above=0, help="highest learning rate")
    adam_epsilon: float = knob(1e-8, above=0, help="Adam's epsilon")
    warmup_steps: int = knob(0, low=0, help="steps in which the learning rate grows from 0")
    logging_steps: int = knob(50, low=1, help="steps between lines of the log")
    save_steps: int = knob(250, low=1, help="steps between checkpoints, and between validations")
    cost_sensitive_ranker: bool = knob(False, help="weigh clusters by how many of a document's labels they hold")
    pre_tokenize: bool = knob(True, help="tokenize all documents before training")
    pre_tensorize_labels: bool = knob(True, help="make the label batches before training")
    use_gpu: bool = knob(True, help="use GPUs where there are any")
    eval_by_true_shorlist: bool = knob(False, help="validate on the true parents' children")
    checkpoint_dir: str = knob("", help="folder of the checkpoints; empty for one that is removed in the end")
    cache_dir: str = knob("", help="folder of downloaded encoders; empty for the usual one")
    init_model_dir: str = knob("", help="folder of a matcher to begin with; empty for model_shortcut")
    # What the peer does not have.
    pooling: str = knob(
        "auto", choices=choices.POOLINGS, help="how tokens become one vector; auto for as the encoder was trained"
    )
    head_learning_rate: float | None = knob(
        None,
        above=0,
        help="highest learning rate of the label head; null for 2.5 times learning_rate with "
        "cross-entropy, learning_rate with the hinges",
    )
    normalize_vectors: bool | None = knob(
        None, help="scale a document's vector to length 1 before the label head; null for with cross-entropy"
    )
    logit_scale: float | None = knob(
        None, above=0, help="factor of the vectors before the label head; null for 20 where they have length 1, else 1"
    )
    token_budget: int | None = knob(
        None, low=1, help="most tokens a step and device, padding included; null for batch_size documents"
    )
    mixed_precision: str = knob("off", choices=choices.PRECISIONS, help="half precision inside the encoder")
    xla: bool = knob(False, help="compile the encoder by XLA")
    route: str = knob("auto", choices=choices.ROUTES, help="what travels between workers: label rows or vectors")
    wire: str = knob("fp32", choices=choices.WIRES, help="format in which it travels")

    @property
    def normalizes(self) -> bool:
        """Whether documents' vectors have length 1 before the label head."""
        return self.loss_function == "cross-entropy" if self.normalize_vectors is None else self.normalize_vectors

    @property
    def scale(self) -> float:
        """Factor of the vectors before the label head."""
        return (20.0 if self.normalizes else 1.0) if self.logit_scale is None else self.logit_scale

    @property
    def head_rate(self) -> float:
        """Highest learning rate of the label head."""
        if self.head_learning_rate is not None:
            return self.head_learning_rate
        return self.learning_rate * (2.5 if self.loss_function == "cross-entropy" else 1.0)

    def check_together(self) -> None:
        """There must be something to begin with."""
        if not self.model_shortcut and not self.init_model_dir:
            raise MisfitError(
                "model_shortcut", "is empty", expected="the name or the folder of an encoder", received='""'
            )


@dataclass(frozen=True)
class MatcherPredParams(Params):
    """How a fine-tuned level predicts."""

    peer_name: ClassVar[str] = "pecos.xmc.xtransformer.matcher###TransformerMatcher.PredParams"

    only_topk: int = knob(20, low=1, help="best nodes that are kept")
    post_processor: str = knob(
        "noop", choices=choices.POST_PROCESSORS, help="what becomes of a score before it is chained"
    )
    ensemble_method: str | None = knob(
        None,
        choices=choices.ENSEMBLES,
        help="whose scores count where there are both: the label head's, the rankers', or both; null for average where "
        "the head learns by cross-entropy, so that its scores are probabilities, else the rankers'; transformer-only, "
        "which the peer's files say, is read as the peer does: while levels are fine-tuned, the labels being the "
        "rankers'",
    )
    truncate_length: int = knob(128, low=2, help="most tokens of a document that are read")
