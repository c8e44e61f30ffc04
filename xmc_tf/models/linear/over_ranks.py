"""The training command with many ranks, or with what an earlier run of it has left."""

import dataclasses
import logging
import shutil
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from xmc_tf.data import Features, as_features, save_matrix
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.features.store import fitted_params
from xmc_tf.fusion import Evidence
from xmc_tf.linear.distributed.account import Account, accounts_table
from xmc_tf.linear.distributed.placing import place_rankers
from xmc_tf.linear.distributed.reporting import reported
from xmc_tf.linear.distributed.training import threads_of_rank, train_trees_over_ranks
from xmc_tf.linear.distributed.work_folder import WorkFolder, open_work_folder
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.linear.folder import write_model
from xmc_tf.models.linear.inputs import LinearInputs, in_order, make_trees, relevance, user_negatives, vectorized
from xmc_tf.models.linear.training import RankerData, learn_evidence, linear_metadata, predicted_trees, summary_of
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.tree import LabelTree, load_chain, save_chain
from xmc_tf.tree.distributed_embeddings import forget_label_embeddings, label_embeddings_over_ranks

_LOG = logging.getLogger(__name__)
_EVIDENCE = "evidence"


def train_command_over_ranks(communicator: Communicator, folder: Path, inputs: LinearInputs, key: str) -> None:
    """Train on all ranks, through files in a work folder beside the model's; resume from files that are there.

    Args:
        communicator: the ranks.
        folder: the model's.
        inputs: the inputs of the command.
        key: of the inputs, as ``check_same_inputs`` gives it.
    """
    first = communicator.rank == 0
    # Only rank 0 makes problems of them; what is wrong with them is said before work begins.
    R, negatives = run_on_all_ranks(
        communicator, lambda: (relevance(inputs), user_negatives(inputs)) if first else (None, {})
    )
    work = open_work_folder(communicator, folder, key)
    account = Account(threads=threads_of_rank(communicator, inputs.arguments.threads))
    ranks, communicator = communicator, account.watching(communicator)
    with reported(inputs.arguments.logdir, ranks, account):
        X = _features(communicator, work, inputs, account)
        if inputs.X is None:
            inputs = inputs.with_tfidf(run_on_all_ranks(communicator, lambda: fitted_params(work.features)))
        _LOG.info("%s documents, %s labels, %s features", *(f"{n:,}" for n in (*inputs.Y.shape, X.nr_features)))
        trees = _trees(communicator, work, inputs, X, account)
        pred_params = inputs.pred_params_for(trees)

        def make_levels() -> list[Levels]:
            ordered = in_order(negatives, trees, inputs.arguments.usn_match_path)
            return [Levels(inputs.Y, tree.to_chain(), R, inputs.params.ranker, ordered) for tree in trees]

        seed = inputs.arguments.seed
        models = train_trees_over_ranks(
            communicator, work, X, make_levels, pred_params=pred_params, account=account, seed=seed
        )  # fmt: skip

    _learn_evidence(communicator, work, inputs, RankerData(X, inputs.Y, trees, None, R, negatives))

    def place() -> None:
        if first:
            kept, names = predicted_trees(trees, inputs.names, inputs.params.ranker)
            metadata = linear_metadata(X, models, inputs.params.ranker, pred_params, inputs.recorded, seed)
            _place_model(folder, work, models, kept, names, metadata)

    run_on_all_ranks(communicator, place)
    table = accounts_table(communicator, account)
    if first:
        _LOG.info("%s: %s\n%s", folder, summary_of(models), table)
        work.remove()
    communicator.barrier()


def _features(communicator: Communicator, work: WorkFolder, inputs: LinearInputs, account: Account) -> Features:
    """The features of the documents, mapped; made of the texts by all ranks where texts are inputs."""
    if inputs.X is not None:
        return inputs.X
    texts, target = inputs.texts, work.file("X.npz")
    assert texts is not None
    if not communicator.broadcast(target.exists()):
        run_on_all_ranks(communicator, lambda: texts.check() if communicator.rank == 0 else None)
        with account.busy(1.0):
            if all(communicator.allgather(find_spec("tensorflow_text") is not None)):
                from xmc_tf.features.over_ranks import vectorize_over_ranks

                vectorize_over_ranks(
                    communicator, texts, inputs.params.tfidf, work.features, target, threads=account.threads
                )  # fmt: skip
            else:
                _LOG.warning("not all ranks have TensorFlow: rank 0 computes the TF-IDF features alone")
                run_on_all_ranks(
                    communicator, lambda: _vectorize_here(work, inputs) if communicator.rank == 0 else None
                )
    return as_features(open_matrix(target))


def _vectorize_here(work: WorkFolder, inputs: LinearInputs) -> None:
    tfidf, X = vectorized(inputs)
    tfidf.save(work.features)
    save_matrix(work.file("X.npz"), X.sparse)


def _trees(
    communicator: Communicator, work: WorkFolder, inputs: LinearInputs, X: Features, account: Account
) -> list[LabelTree]:
    """The trees; those that are built are kept for the next run."""
    folders = [work.tree, *(work.file(f"tree-{number}") for number in range(1, len(inputs.params.trees)))]
    if not inputs.arguments.code_path and communicator.broadcast(folders[-1].exists()):
        return run_on_all_ranks(communicator, lambda: [load_chain(folder) for folder in folders])

    def embed(method: str) -> Features:
        return label_embeddings_over_ranks(communicator, method, X, inputs.Y, work.path, account.threads)

    with account.busy(1.0):
        trees = make_trees(communicator, inputs, embed, account.threads)
    if not inputs.arguments.code_path:
        communicator.barrier()  # a slower rank may still open the embeddings, which rank 0 removes
        run_on_all_ranks(communicator, lambda: _keep(work, folders, trees) if communicator.rank == 0 else None)
    return trees


def _learn_evidence(communicator: Communicator, work: WorkFolder, inputs: LinearInputs, data: RankerData) -> None:
    """Learn what label names are worth, on rank 0, and keep it for the next run; the other ranks wait."""
    if not inputs.arguments.label_names or communicator.broadcast((work.path / _EVIDENCE).exists()):
        return

    def learn() -> None:
        assert inputs.lines is not None
        assert inputs.texts is not None
        negatives = in_order(dict(data.user_negatives or {}), data.trees, inputs.arguments.usn_match_path)
        ordered = dataclasses.replace(data, user_negatives=negatives)
        threads, seed = inputs.arguments.threads, inputs.arguments.seed
        part = work.path / f"{_EVIDENCE}.part"
        shutil.rmtree(part, ignore_errors=True)
        learn_evidence(
            inputs.lines, inputs.texts, ordered, inputs.params, inputs.overrides, threads=threads, seed=seed
        ).save(part)
        part.rename(work.path / _EVIDENCE)

    run_on_all_ranks(communicator, lambda: learn() if communicator.rank == 0 else None)


def _keep(work: WorkFolder, folders: Sequence[Path], trees: Sequence[LabelTree]) -> None:
    for folder, tree in zip(folders, trees, strict=True):  # the last one marks all as complete
        save_chain(folder, tree)
    forget_label_embeddings(work.path)  # the disk has better use for the room, and the weights are not there yet


def _place_model(
    folder: Path,
    work: WorkFolder,
    models: Sequence[XLinear],
    trees: Sequence[LabelTree],
    names: list[str] | None,
    metadata: ModelMetadata,
) -> None:
    """Write the model folder, completely or not at all.

    Args:
        folder: the model's.
        work: where the weights are; it stays as it is.
        models: as ``train_trees_over_ranks`` gave them.
        trees: over what the models predict.
        names: of what the model predicts, where they have any.
        metadata: the model metadata for ``params.json``.
    """

    def place_tfidf(part: Path) -> None:
        shutil.copytree(work.features, part)

    starts = [sum(model.depth for model in models[:number]) for number in range(len(models))]
    placing = [
        partial(place_rankers, work=work, model=model, first=at) for model, at in zip(models, starts, strict=True)
    ]
    write_model(
        folder, trees, names, metadata, placing,
        place_tfidf if work.features.is_dir() else None, Evidence.load(work.path / _EVIDENCE),
    )  # fmt: skip
