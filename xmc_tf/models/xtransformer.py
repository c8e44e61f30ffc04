"""``XTransformer``: the whole model, from text to labels, in one folder.

params.json   all parameters, versions, shapes, seed
labels.txt    label names, where given
tree/         the rankers' label tree
features/     the fitted TF-IDF, where the model makes its own features
encoder/      the transformer and its tokenizer, as a Hugging Face folder
head/         the label heads of the levels that were fine-tuned on, one file a shard
ranker/       the rankers, in PECOS's XLinear format
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.model_kind import pecos_class
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.common.process.run_records import temporary_folder
from xmc_tf.data import as_features
from xmc_tf.linear.sub_models import checked_labels
from xmc_tf.models.folder import MODEL, read_facts, read_names, write_facts, write_names
from xmc_tf.models.parts import PARTS, Parts
from xmc_tf.models.pecos_folder import convert_parts, read_pecos_folder
from xmc_tf.models.prediction import Wishes, predict, vectors_of
from xmc_tf.models.results import named
from xmc_tf.params import TfidfParams, XTransformerParams, XTransformerPredParams
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.pipeline.inputs import Documents, Recipe, Texts, TrainingInputs
from xmc_tf.pipeline.stages import Stages
from xmc_tf.pipeline.training import Made, make_parts
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.serving.export import Exported, ExportSettings


class XTransformer(Parts):
    """A fine-tuned encoder, its label head, and rankers on [features ; vector].

    Example:
        >>> model = XTransformer.load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', 0.71), …]]
    """

    # Made, written, read.

    @classmethod
    def train(
        cls,
        texts: Texts,
        Y: spmatrix,
        *,
        params: XTransformerParams | None = None,
        pred_params: XTransformerPredParams | None = None,
        X: Any = None,
        tfidf: TfidfParams | None = TfidfParams(),  # noqa: B008  it is frozen
        tree: LabelTree | None = None,
        label_features: Any = None,
        validation: tuple[Any, ...] | Documents | None = None,
        names: Sequence[str] | None = None,
        strategy: "CollectiveStrategy | None" = None,
        work_dir: str | Path | None = None,
        seed: int = 0,
        threads: int = -1,
        logdir: str | Path | None = None,
        **wishes: Any,
    ) -> Self:
        """Train a model. Under ``horovodrun``, all ranks must call it.

        Example:
            >>> model = XTransformer.train(TextFile("X.trn.txt"), Y, names=names)
            >>> model.save("model")

        Args:
            texts: one text per document.
            Y: labels, a sparse matrix of documents × labels.
            params: training options (default: all defaults).
            pred_params: default prediction options of the model.
            X: features, documents × features, as ``as_features`` accepts them (default: TF-IDF of the texts).
            tfidf: options of that TF-IDF; None to train the rankers on embeddings only.
            tree: label tree for fine-tuning (default: built from the features).
            label_features: labels × features, to build that tree from.
            validation: held-out documents: (texts, Y) or (texts, Y, X).
            names: label names.
            strategy: distribution over ranks (default: the ranks of the launcher).
            work_dir: folder for finished stages. With the same folder, the same call resumes an interrupted training.
                Required for several ranks, on a shared disk.
            seed: random seed.
            threads: number of threads for tree and rankers; -1: one per core.
            logdir: folder for TensorBoard's log files.
            **wishes: ``beam_size``, ``only_topk``, ``post_processor`` and ``ensemble_method`` override ``pred_params``.
        """
        communicator = strategy.communicator if strategy is not None else choose_communicator()
        documents = Documents(texts, Y, None if X is None else as_features(X))
        if validation is not None and not isinstance(validation, Documents):
            held_X = as_features(validation[2]) if len(validation) > 2 and validation[2] is not None else None
            validation = Documents(validation[0], validation[1], held_X)
        kept = None
        if work_dir is None:
            if communicator.size > 1:
                raise InputError("several ranks need a shared folder", expected="work_dir", received="None")
            kept = temporary_folder()
            work_dir = Path(kept.name) / "work"
        recipe = Recipe(
            params or XTransformerParams(),
            pred_params or XTransformerPredParams(),
            None if X is not None else tfidf,
            seed=seed,
            threads=threads,
            logdir=None if logdir is None else str(logdir),
            **wishes,
        )
        given = TrainingInputs(documents, tree, label_features, names, validation)
        return cls.trained(given, recipe, Stages(work_dir, communicator), strategy, kept)

    @classmethod
    def trained(
        cls,
        given: TrainingInputs,
        recipe: Recipe,
        stages: Stages,
        strategy: "CollectiveStrategy | None" = None,
        kept: Any = None,
    ) -> Self:
        """Train a model in the given stages."""

        def the_strategy() -> "CollectiveStrategy":
            from xmc_tf.collective.strategy import CollectiveStrategy

            return strategy or CollectiveStrategy(stages.communicator, seed=recipe.seed)

        made: Made = make_parts(given, recipe, stages, the_strategy)
        return cls(made.parts, made.facts, given.names, where=stages.folder, kept=kept)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all.

        An older model there is replaced; other files stay. Only one rank may call it.
        """
        folder = Path(folder)
        from_pecos = bool(pecos_class(self.folder))
        if from_pecos and folder.exists() and folder.samefile(self.folder):
            raise InputError(
                f"{folder} is the folder of PECOS that this model was loaded from",
                expected="another folder for the converted model",
                fix="save it elsewhere; PECOS's files are not changed",
            )
        with placed_folder(folder, MODEL) as part:
            facts = self.facts
            if from_pecos:
                facts = convert_parts(self, part)
            else:
                for name, source in self.parts.items():
                    shutil.copytree(source, part / name, copy_function=_link_or_copy)
            write_names(part, self.names)
            write_facts(part, facts)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Reads a model's folder, or a folder of ``pecos.xmc.xtransformer``; ``save`` converts that one."""
        folder = Path(folder)
        if pecos := pecos_class(folder):
            if pecos != "XTransformer":
                raise InputError(
                    f"{folder} is not an XR-Transformer model",
                    expected="a folder of xmc_tf.train or pecos.xmc.xtransformer.train",
                    received=f"a part of one or another model: PECOS's {pecos[:40]}",
                    fix="give the whole model's folder; python -m xmc_tf.linear.predict reads PECOS's XLinearModel",
                )
            parts, facts = read_pecos_folder(folder)
            return cls(parts, facts, where=folder)
        facts = read_facts(folder)
        if facts.get("model") != "XTransformer":
            raise InputError(
                f"{folder} is not an XR-Transformer model",
                expected="a model of xmc_tf.train",
                received="a linear model" if facts.get("model") == "XLinear" else f"a model {facts.get('model')!r}",
                fix="use python -m xmc_tf.linear.predict (in Python: XRLinear.load) for linear models",
            )
        parts = {name: folder / name for name in PARTS if (folder / name).is_dir()}
        if "encoder" not in parts:
            raise InputError(f"{folder}: encoder/ is missing", fix="the folder is incomplete: copy it again")
        return cls(parts, facts, read_names(folder, int(facts["nr_labels"])), where=folder)

    # What it does.

    def encode(self, texts: Texts, *, batch_tokens: int = 16384) -> np.ndarray:
        """Return the embeddings of texts, scaled to length 1: float32 [texts, dim]."""
        return rows_of_length(1.0, vectors_of(self, texts, batch_tokens))

    def predict(
        self,
        texts: Texts,
        X: Any = None,
        *,
        beam_size: int | None = None,
        only_topk: int | None = None,
        post_processor: str | None = None,
        ensemble_method: str | None = None,
        max_pred_chunk: int = 1_000_000,
        batch_tokens: int = 16384,
        threads: int = -1,
    ) -> csr_matrix:
        """Predict the best labels of texts.

        Args:
            texts: one text per document.
            X: features of the documents; required if the model was trained with features.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None, here
                and below: the model's default.
            only_topk: number of labels per document.
            post_processor: function applied to the scores of each level.
            ensemble_method: ``concat-only`` for the rankers' scores, ``transformer-only`` for the label head's, or
                ``average``, ``rank_average``, ``round_robin`` of both.
            max_pred_chunk: number of documents to predict at a time.
            batch_tokens: number of tokens to encode at a time.
            threads: number of threads of the rankers; -1: one per core.

        Returns:
            (documents × labels) scores, descending within a row.
        """
        wishes = Wishes(
            ensemble_method or str(self.facts["ensemble_method"]),
            beam_size, only_topk, post_processor, max_pred_chunk, batch_tokens, threads,
        )  # fmt: skip
        return predict(self, texts, X, wishes)

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to some labels, without changing the model's folder.

        Args:
            labels: numbers of the labels that may be predicted; None for all.
        """
        self.output_labels = None if labels is None else checked_labels(labels, self.nr_labels)
        if "ranker" in self.parts:
            self.ranker.set_output_constraint(self.output_labels)

    def export(self, folder: str | Path, settings: "ExportSettings | None" = None) -> "Exported":
        """Export the model as a SavedModel, from text to label names; see ``xmc_tf.serving.export.export_model``.

        Example:
            >>> print(model.export("served/1").table())
        """
        from xmc_tf.models.exporting import parts_of
        from xmc_tf.serving.export import export_model

        return export_model(parts_of(self), folder, settings)

    def best(
        self,
        texts: Texts,
        k: int = 5,
        *,
        X: Any = None,
        beam_size: int | None = None,
        post_processor: str | None = None,
        ensemble_method: str | None = None,
        max_pred_chunk: int = 1_000_000,
        batch_tokens: int = 16384,
        threads: int = -1,
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each text, best first.

        A label without a name goes by its number. For the other arguments see :meth:`predict`.
        """
        predicted = self.predict(
            texts, X, beam_size=beam_size, only_topk=k, post_processor=post_processor, ensemble_method=ensemble_method,
            max_pred_chunk=max_pred_chunk, batch_tokens=batch_tokens, threads=threads,
        )  # fmt: skip
        return list(named(predicted, self.names))


def _link_or_copy(source: str, target: str) -> None:
    """Create a hard link to a file, or a copy if the file system does not support it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
