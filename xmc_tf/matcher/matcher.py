"""The matcher (an encoder, and a sharded label head for each fine-tuned level), and its training level by level.

The result of each level is saved in the level's folder. If training is interrupted, another call resumes after the
last complete level, and within a level from its last checkpoint.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix, vstack

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.checkpoints.manifest import read_manifest
from xmc_tf.collective.checkpoints.shard_files import ArraySource
from xmc_tf.collective.checkpoints.training_state import has_checkpoint
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data import TokenStore
from xmc_tf.encoder import encode_documents, encode_windows
from xmc_tf.matcher.bootstrap import NEED_VECTORS, bootstrap
from xmc_tf.matcher.candidates import CandidateSampler, EveryNode, LevelData, parents_matched
from xmc_tf.matcher.fine_tune import LevelResult, fine_tune_level, make_batches, total_steps
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.label_search import LabelSearch
from xmc_tf.matcher.predict_levels import predict_level
from xmc_tf.matcher.progress import LevelCurves, LevelSummaries, write_projector, write_texts
from xmc_tf.matcher.tasks import LevelTask, MatcherData, MatcherSettings, deepest_level, levels_of
from xmc_tf.metrics import as_truth, mark_hits, top_labels
from xmc_tf.params import MatcherParams, MatcherPredParams, per_level
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced, equal_rounds
from xmc_tf.ranks.stacking import stack_rows
from xmc_tf.store.arrays import write_npy
from xmc_tf.store.files import log_folder

logger = logging.getLogger(__name__)
WINDOWS_AT_ONCE = 1 << 16  # windows whose embeddings are in memory at once


class Matcher(LabelSearch):
    """The fine-tuned encoder and label heads. Methods that take embeddings must be called on all ranks, each with the
    embeddings of its own documents.
    """

    def __init__(
        self, strategy: CollectiveStrategy, heads: Sequence[LabelHead], splits: Sequence[np.ndarray],
        labels: np.ndarray | None, encoder: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(heads, splits, labels)
        self.strategy, self.encoder = strategy, encoder
        self.results: list[LevelResult] = []

    @classmethod
    def train(
        cls, strategy: CollectiveStrategy, encoder: Any, data: MatcherData, settings: MatcherSettings, *,
        folder: str | Path, logdir: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Fine-tune encoder and heads level by level, resuming if an earlier call with this folder was interrupted. All
        ranks must call this method. All hosts must share the folder, and the caller must remove it. With
        ``negative_sampling="all"``, only the last level is trained, under one root, because its candidates do not
        depend on a level above.
        """
        params = _last(settings.params)
        if params.negative_sampling == "all":
            tree = data.tree.under_one_root(deepest_level(data.tree, settings.max_match_clusters))
            data = replace(data, tree=tree)
            settings = replace(
                settings, params=params, pred_params=_last(settings.pred_params),
                max_match_clusters=tree.level_sizes[1],
            )  # fmt: skip
        levels = LevelByLevel(strategy, encoder, data, settings, Path(folder), logdir)
        tree = data.tree
        heads, results = levels.train()
        labels = tree.labels if len(heads) == tree.depth else None
        matcher = cls(strategy, heads, tree.splits[: len(heads)], labels, encoder)
        matcher.results = results
        return matcher

    def save(self, folder: str | Path) -> None:
        """Save the heads, but not the encoder, to a shared folder. All ranks must call it; each writes its own rows."""
        save_tables(folder, [head.table for head in self.heads], self.strategy.communicator, self.extra())


@dataclass
class LevelByLevel:
    """The training of encoder and heads level by level, with the arguments of ``Matcher.train``."""

    strategy: CollectiveStrategy
    encoder: Any
    data: MatcherData
    settings: MatcherSettings
    folder: Path
    logdir: str | Path | None = None
    _vectors: np.ndarray | None = field(default=None, init=False)

    def train(self) -> tuple[list[LabelHead], list[LevelResult]]:
        """Train the incomplete levels and update the encoder in place; return the heads and results of all levels."""
        world, data, settings = self.strategy.communicator, self.data, self.settings
        tasks = levels_of(data.tree, data.Y, max_match_clusters=settings.max_match_clusters, weights=True)
        params = per_level(settings.params, len(tasks), "matcher_params_chain")
        pred_params = per_level(settings.pred_params, len(tasks), "the matcher's prediction parameters")
        held_out: list[LevelTask] = []
        if data.validation is not None:
            held_out = levels_of(data.tree, data.validation.Y, max_match_clusters=settings.max_match_clusters)
        writer = None
        if self.logdir is not None and world.rank == 0:
            writer = tf.summary.create_file_writer(log_folder(self.logdir))
            write_texts(writer, data.tree, params)

        heads: list[LabelHead] = []
        results: list[LevelResult] = []
        predicted: csr_matrix | None = None  # of all documents, at the level above
        held_out_predicted: csr_matrix | None = None  # of this rank's validation documents
        for number, (task, now, shown) in enumerate(zip(tasks, params, pred_params, strict=True)):
            logger.info("level %d: %d nodes", task.level, task.nr_nodes)
            place = self.folder / f"level_{task.level}"
            head = LabelHead.for_level(self.strategy, task.level, task.nr_nodes, self.encoder.dim, task.splits, now)
            if has_checkpoint(place / "done", world):
                predicted, steps = self._load(place / "done", head)
                curves = LevelCurves.load(place / "training", steps)
                results.append(LevelResult(steps=steps, first_step=steps, curves=curves))
            else:
                # 1. The parents whose children are a document's candidates.
                true_above = tasks[number - 1].targets if number else None
                matched = parents_matched(task, now.negative_sampling, true_above, predicted)
                # 2. Initial rows, unless a checkpoint has later ones.
                if not has_checkpoint(place / "training" / "last", world):
                    self._bootstrap(head, task, now, matched, heads[-1] if heads else None)
                # 3. Fine-tuning.
                sampler: CandidateSampler | EveryNode = EveryNode(task)
                if matched is not None:
                    sampler = CandidateSampler(task, matched, now.max_active_matching_labels, settings.seed)
                parents = held_out_predicted
                if now.eval_by_true_shorlist and held_out and number:
                    parents = self._own_held_out(held_out[number - 1].targets)
                result = fine_tune_level(
                    self.strategy, self.encoder, head, LevelData(data.store, sampler, data.pad_id, data.rows), now,
                    folder=place / "training", seed=settings.seed,
                    summaries=None if writer is None else LevelSummaries(writer, task.level),
                    validate=self._validator(head, held_out[number], parents, shown) if held_out else None,
                    later_steps=sum(map(self._steps_of, tasks[number + 1 :], params[number + 1 :])),
                )  # fmt: skip
                results.append(result)
                self._vectors = None
                # 4. Predictions, if a later level takes negatives from them.
                wanted = any("man" in later.negative_sampling for later in params[number + 1 :])
                predicted = self._predict_all(head, task, predicted, shown) if wanted else None
                self._save(place / "done", head, predicted, result.steps)
            if held_out and number + 1 < len(tasks):
                held_out_predicted = self._predict_held_out(head, task, held_out_predicted, shown)
            heads.append(head)
        if self.logdir is not None:
            write_projector(self.logdir, heads, data.tree, data.Y, data.names)
        return heads, results

    def _steps_of(self, task: LevelTask, params: MatcherParams) -> int:
        """Return the number of steps of a level."""
        data = LevelData(self.data.store, EveryNode(task), self.data.pad_id, self.data.rows)
        return total_steps(make_batches(self.strategy, data, params, self.settings.seed), params)

    def vectors(self) -> np.ndarray:
        """Return the current encoder's embeddings of all documents (means over windows), computed once per level."""
        if self._vectors is None:
            path, store, world = self.folder / "vectors.npy", self.data.store, self.strategy.communicator
            low, high = own_documents(store, world)

            def encode() -> Path:
                path.parent.mkdir(parents=True, exist_ok=True)
                quiet_s = 2.0 if world.rank == 0 else math.inf  # only rank 0 shows its progress
                with Progress("encoding", high - low, "documents", quiet_s) as progress:
                    rows = encode_documents(self.encoder, store, np.arange(low, high), progress=progress)
                write_npy(own := path.with_name(f"vectors-{world.rank}.npy"), rows)
                return own

            stack_rows(world, [run_on_all_ranks(world, encode)], path)
            self._vectors = np.load(path, mmap_mode="r")
        return self._vectors

    def _own_held_out(self, matrix: csr_matrix) -> csr_matrix:
        """Return the rows of a matrix that belong to this rank's validation documents."""
        assert self.data.validation is not None
        low, high = own_documents(self.data.validation.store, self.strategy.communicator)
        return matrix[low:high]

    def _bootstrap(
        self, head: LabelHead, task: LevelTask, params: MatcherParams, matched: csr_matrix | None,
        parent_head: LabelHead | None,
    ) -> None:  # fmt: skip
        """Set the initial rows of a head with the method ``params.bootstrap``, which sees only training documents."""
        vectors, rows = self.vectors() if params.bootstrap in NEED_VECTORS else None, self.data.rows
        if rows is not None:
            task = replace(task, targets=task.targets[rows])
            matched = None if matched is None else matched[rows]
            vectors = None if vectors is None else vectors[rows]
        bootstrap(
            head, params.bootstrap, task=task, matched=matched, vectors=vectors, parent_head=parent_head,
            loss_function=params.loss_function, seed=self.settings.seed,
        )  # fmt: skip

    def _predict_all(
        self, head: LabelHead, task: LevelTask, parents: csr_matrix | None, params: MatcherPredParams
    ) -> csr_matrix:
        """Return predictions for all documents on every rank; each rank computes them for its own documents."""
        world, store = self.strategy.communicator, self.data.store
        low, high = own_documents(store, world)
        assert parents is not None or task.nr_parents == 1
        above = None if task.nr_parents == 1 or parents is None else parents[low:high]
        if store.nr_documents == len(store):
            own = predict_level(
                head, np.asarray(self.vectors()[low:high]), above, task.splits,
                only_topk=params.only_topk, post_processor=params.post_processor,
            )  # fmt: skip
        else:
            own = self._predict_windows(head, task, store, above, params)
        return csr_matrix(vstack(world.allgather(own), format="csr"))

    def _predict_held_out(
        self, head: LabelHead, task: LevelTask, parents: csr_matrix | None, params: MatcherPredParams
    ) -> csr_matrix:
        """Return the current encoder's predictions for this rank's validation documents."""
        assert self.data.validation is not None
        assert parents is not None or task.nr_parents == 1
        above = None if task.nr_parents == 1 else parents
        return self._predict_windows(head, task, self.data.validation.store, above, params)

    def _predict_windows(
        self, head: LabelHead, task: LevelTask, store: TokenStore, parents: csr_matrix | None,
        params: MatcherPredParams,
    ) -> csr_matrix:  # fmt: skip
        """Return predictions for this rank's documents in a store, combined from the scores of their windows."""
        world = self.strategy.communicator
        low, high = own_documents(store, world)
        begins = store.splits[low : high + 1] - store.splits[low]
        parts = []
        for first, last in equal_rounds(begins, WINDOWS_AT_ONCE, world) or [(0, 0)]:
            vectors, windows = encode_windows(self.encoder, store, np.arange(low + first, low + last))
            above = None if parents is None else parents[first:last]
            parts.append(
                predict_level(
                    head, vectors, above, task.splits, only_topk=params.only_topk,
                    post_processor=params.post_processor, windows=windows,
                )
            )  # fmt: skip
        return csr_matrix(vstack(parts, format="csr"))

    def _validator(
        self, head: LabelHead, task: LevelTask, parents: csr_matrix | None, params: MatcherPredParams
    ) -> Callable[[], dict[str, float]]:
        """Return a function that computes the metrics of encoder and head on the validation documents."""
        truth = self._own_held_out(task.targets)
        return lambda: precision(truth, self._predict_held_out(head, task, parents, params), self.strategy.communicator)

    def _save(self, folder: Path, head: LabelHead, predicted: csr_matrix | None, steps: int) -> None:
        """Save a level's result: the encoder, the head, and the predictions if a later level needs them."""
        extra: dict[str, ArraySource] = {
            f"encoder/{number:05d}": partial(_numpy, one) for number, one in enumerate(self.encoder.variables)
        }
        if predicted is not None:
            extra |= {"data": predicted.data, "indices": predicted.indices, "indptr": predicted.indptr}
        save_tables(folder, [head.table], self.strategy.communicator, extra, steps)

    def _load(self, folder: Path, head: LabelHead) -> tuple[csr_matrix | None, int]:
        """Load a level's result; return its predictions (None if it has none) and its number of steps."""
        found = load_tables(folder, [head.table], self.strategy.communicator)
        for number, variable in enumerate(self.encoder.variables):
            value = found.get(f"encoder/{number:05d}")
            if value is None or value.shape != tuple(variable.shape):
                raise InputError(
                    f"{folder} was trained with another encoder: {variable.name}",
                    expected=f"shape {tuple(variable.shape)}",
                    received="nothing" if value is None else f"shape {value.shape}",
                    fix="remove the folder, or train with that encoder",
                )
            variable.assign(tf.cast(value, variable.dtype))
        steps = read_manifest(folder).step
        if "data" not in found:
            return None, steps
        parts = found["data"], found["indices"], found["indptr"]
        return csr_matrix(parts, shape=(self.data.store.nr_documents, head.nr_nodes)), steps


def own_documents(store: TokenStore, communicator: Communicator) -> tuple[int, int]:
    """Return the range of documents that belong to this rank; each rank has about the same number of tokens."""
    return balanced(store.document_lengths + 1, communicator.size).range(communicator.rank)


def precision(
    truth: csr_matrix, predicted: csr_matrix, communicator: Communicator, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """Return the precision at each k, in percent, over the documents of all ranks. All ranks must call it."""
    hits = mark_hits(as_truth(truth), top_labels(predicted, max(ks)))
    mine = np.array([len(hits), *(hits[:, :k].sum() for k in ks)], np.float64)
    documents, *found = communicator.allreduce_array(mine)
    return {f"P@{k}": float(100.0 * count / (k * max(documents, 1.0))) for k, count in zip(ks, found, strict=True)}


def _last(params: Any) -> Any:
    """Return the parameters of the last level, given one set for all levels or a list with one set per level."""
    return params if isinstance(params, MatcherParams | MatcherPredParams) else params[-1]


def _numpy(variable: tf.Variable) -> np.ndarray:
    value = variable.read_value()
    return tf.cast(value, tf.float32).numpy() if variable.dtype == tf.bfloat16 else value.numpy()
