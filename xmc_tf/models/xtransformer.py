from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import require
from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.data import Features, Texts, as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.documents import DocumentsLike, FrameColumns, ReadDocuments, read_documents
from xmc_tf.models.encoded_names import train_on_encoded_names
from xmc_tf.models.evidence_stage import evidence_stage
from xmc_tf.models.explaining.explain import explain_encoded, one_text
from xmc_tf.models.explaining.explanation import Explanation
from xmc_tf.models.folder import link_part, read_metadata, read_names, write_model_folder
from xmc_tf.models.incremental.training_data import TrainedDocuments
from xmc_tf.models.labels import Labels, label_matrix, true_labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.model import DataKeywords, Model
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.pecos_folder import converted_metadata, converted_parts, read_pecos_folder
from xmc_tf.models.prediction import method_of, own_features, ranker_features, scored, vectors_of
from xmc_tf.models.results import Scored, labels_of_rankers
from xmc_tf.params import PredictionOptions, RankerParams, TfidfParams, XTransformerParams, XTransformerPredParams
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.pipeline.ensembles import is_chosen
from xmc_tf.pipeline.inputs import Documents, Recipe, TrainingInputs, checksum
from xmc_tf.pipeline.stages import Record, Stages
from xmc_tf.pipeline.training import TrainedParts, make_parts
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.store.models import (
    DOCUMENTS,
    ENCODER,
    FUSION,
    HIERARCHY,
    NAMES,
    RANKER,
    TRAINING,
    pecos_class,
)
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.serving.export import ModelParts


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """Settings of a training run. Only ``seed``, ``effort`` and the number of ranks affect the resulting model.

    Example:
        >>> XTransformer.train(texts, labels, run=TrainingRun(work_dir="model.work", logdir="logs"))

    Args:
        work_dir: folder for completed stages. To resume an interrupted run, repeat the call with the same folder.
            With several ranks, it is required and must be on a shared disk (default: a temporary folder).
        logdir: folder for TensorBoard's log files (default: none are written).
        strategy: distribution over ranks (default: the ranks that the launcher started).
        threads: number of threads for tree and rankers; -1: one per core.
        seed: random seed.
        effort: "fast", "balanced" or "best": choose the number and shapes of the rankers' label trees to suit the data
            (default: one tree, as the parameters specify).
    """

    work_dir: str | Path | None = None
    logdir: str | Path | None = None
    strategy: "CollectiveStrategy | None" = None
    threads: int = -1
    seed: int = 0
    effort: str | None = None

    def open(self) -> "tuple[Stages, TemporaryFolder | None]":
        """Return the stages of the run, and the temporary folder that contains them (None if ``work_dir`` is set)."""
        communicator = self.strategy.communicator if self.strategy is not None else choose_communicator()
        if self.work_dir is not None:
            return Stages(self.work_dir, communicator), None
        if communicator.size > 1:
            raise InputError(
                "several ranks need a shared folder", expected="run=TrainingRun(work_dir=...)",
                received="work_dir None",
            )  # fmt: skip
        temporary = TemporaryFolder()
        return Stages(Path(temporary.name) / "work", communicator), temporary


class XTransformer(LazyModelFolder, Model):  # type: ignore[override]  # mypy takes cached properties for read-only
    """A fine-tuned encoder with its label head, and linear rankers that read features and embeddings.

    Example:
        >>> model = XTransformer.load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', …), …]]
    """

    @classmethod
    def train(
        cls,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        names: Sequence[str] | None = None,
        X: Any = None,
        tree: Any = None,
        validation: tuple[Any, ...] | None = None,
        params: XTransformerParams | None = None,
        pred_params: XTransformerPredParams | None = None,
        tfidf: TfidfParams | None = TfidfParams(),  # noqa: B008  it is frozen
        run: TrainingRun | None = None,
        **further: Unpack[DataKeywords],
    ) -> Self:
        """Train a model. In a distributed run (``horovodrun``), all ranks must call this method.

        Example:
            >>> model = XTransformer.train(TextFile("X.trn.txt"), load_matrix("Y.trn.npz"), names=names)
            >>> model.save("model")

        Args:
            texts: one text per document, or a DataFrame; see :meth:`XRLinear.train`.
            labels: the labels of each document; see :meth:`XRLinear.train`. None if no document is labelled: the model
                is then trained on ``names`` alone, with the encoder as it is.
            names: label names, in the order of the columns (default: the names in ``labels``, sorted).
            X: features as a matrix of documents × features, in any form that ``as_features`` accepts (default: TF-IDF
                of the texts).
            tree: label tree for fine-tuning, or a matrix of labels × features to build it from (default: built from the
                features of the labels' documents).
            validation: held-out documents for metrics during fine-tuning: (texts, labels) or (texts, labels, X).
            params: training options (default: all defaults).
            pred_params: default prediction options of the model.
            tfidf: options of TF-IDF; None to train the rankers on embeddings only.
            run: work folder, ranks, threads, seed and effort of the run (default: one process, a temporary folder, seed
                0, one label tree).
            **further: ``unlabelled``, ``text``, ``label_separator`` and others; see :meth:`XRLinear.train`.

        Raises:
            InputError: the inputs do not fit together, or a label is not in ``names``.
        """
        run = run or TrainingRun()
        columns = cast(FrameColumns, {name: one for name, one in further.items() if name != "unlabelled"})
        read = read_documents(texts, labels, columns, training=True, labelled=True)
        unlabelled = read_documents(further.get("unlabelled", []), name="unlabelled", training=True).only_texts()
        recipe = Recipe(
            params or XTransformerParams(), pred_params or XTransformerPredParams(), None if X is not None else tfidf,
            seed=run.seed, threads=run.threads, logdir=None if run.logdir is None else str(run.logdir),
            effort=run.effort,
        )  # fmt: skip
        if labels is None and read.labels is None and names is not None:
            if X is not None or tree is not None or validation is not None or len(unlabelled):
                raise InputError(
                    "X, tree, validation and unlabelled need labelled documents", fix="pass labels, or leave them out"
                )
            return cls._train_on_names(list(names), read.only_texts(), recipe, run)
        Y, lines = label_matrix(read.labelled(), names)
        names = None if lines is None else label_vocabulary(lines).preferred
        documents = Documents(read.only_texts(), Y, None if X is None else as_features(X))
        own_tree = tree if isinstance(tree, LabelTree) else None
        inputs = TrainingInputs(
            documents, own_tree, None if own_tree is not None else tree, names,
            None if validation is None else _held_out(validation, documents.nr_labels, names), lines,
            unlabelled=unlabelled,
        )  # fmt: skip
        stages, temporary = run.open()
        model = cls._train_in_stages(inputs, recipe, stages, run.strategy, temporary)
        model.metadata = model.metadata.with_columns(read.columns)
        return model

    @classmethod
    def _train_on_names(
        cls, lines: Sequence[str], texts: Texts, recipe: Recipe, run: TrainingRun,
        hierarchy: LabelHierarchy | None = None,
    ) -> Self:  # fmt: skip
        """Train a model that knows labels by their names only, before any document is labelled."""
        stages, temporary = run.open()
        parts, metadata = train_on_encoded_names(lines, texts, recipe, stages, hierarchy)
        return cls(parts, metadata, label_vocabulary(lines).preferred, where=stages.folder, temp_dir=temporary)

    @classmethod
    def _train_in_stages(
        cls,
        inputs: TrainingInputs,
        recipe: Recipe,
        stages: Stages,
        strategy: "CollectiveStrategy | None" = None,
        temp_dir: Any = None,
    ) -> Self:
        """Train a model in stages; completed stages are not repeated.

        Args:
            inputs: the training data.
            recipe: all options.
            stages: the stages, in a work folder.
            strategy: distribution over ranks (default: the ranks that run the stages).
            temp_dir: an object that must live as long as the model, such as a temporary folder.
        """

        def the_strategy() -> "CollectiveStrategy":
            from xmc_tf.collective.strategy import CollectiveStrategy

            return strategy or CollectiveStrategy(stages.communicator, seed=recipe.seed)

        require("tensorflow")  # the first stages do without it
        recipe = recipe.for_data(inputs.documents.nr_documents, inputs.documents.nr_labels)
        made: TrainedParts = make_parts(inputs, recipe, stages, the_strategy)
        model = cls(made.parts, ModelMetadata(made.metadata), inputs.names, where=stages.folder, temp_dir=temp_dir)
        if made.held_out is not None and made.embeddings is not None:
            stage = evidence_stage(
                model, made.held_out, made.embeddings, inputs, recipe, stages, named=made.label_names,
                decide_on_head=not is_chosen(recipe),
            )  # fmt: skip
            model.metadata = model.metadata.replace(ensemble_method=stage.record["ensemble_method"])
            learned = (NAMES, FUSION) if made.label_names else (FUSION,)
            model.parts |= {name: stage.folder / name for name in learned}
        if inputs.hierarchy is not None:
            hierarchy = inputs.hierarchy

            def keep(folder: Path) -> Record:
                hierarchy.save(folder / HIERARCHY)
                return {"summary": f"{len(hierarchy.broader):,} labels with broader terms"}

            stage = stages.run("hierarchy", keep, inputs={"broader": hierarchy.broader})
            model.parts[HIERARCHY] = stage.folder / HIERARCHY

        def keep_documents(folder: Path) -> Record:
            known = TrainedDocuments.of(text for part in read for text in part.texts)
            known.save(folder / DOCUMENTS)
            return {"summary": f"{len(known.keys):,} different texts"}

        read = [inputs.documents] if inputs.validation is None else [inputs.documents, inputs.validation]
        stage = stages.run("documents", keep_documents, inputs={"texts": [checksum(part.texts) for part in read]})
        model.parts[DOCUMENTS] = stage.folder / DOCUMENTS
        return model

    def _save(self, folder: Path) -> None:
        from_pecos = bool(pecos_class(self.folder))
        if from_pecos and folder.exists() and folder.samefile(self.folder):
            raise InputError(
                f"{folder} is the PECOS folder that this model was loaded from",
                expected="another folder for the converted model",
                fix="choose another folder; PECOS's files are not changed",
            )
        if from_pecos:
            write_model_folder(folder, converted_parts(self), self.names, converted_metadata(self))
        else:
            linked = {name: partial(link_part, source) for name, source in self.parts.items()}
            write_model_folder(folder, linked, self.names, self.metadata)

    @classmethod
    def load(cls, folder: str | Path, *, runtime: str = "auto") -> Self:
        """Load a model, or a folder of ``pecos.xmc.xtransformer``, which ``save`` converts.

        Args:
            folder: a model folder of xmc_tf, or PECOS's folder of an XR-Transformer model.
            runtime: runtime of the encoder: "tensorflow", "onnx" (ONNX Runtime), or "auto", which uses TensorFlow
                unless it is not installed or the model was exported for ONNX Runtime.
        """
        folder = Path(folder)
        if pecos := pecos_class(folder):
            if pecos != "XTransformer":
                raise InputError(
                    f"{folder} is not an XR-Transformer model",
                    expected="a folder of xmc_tf.train or pecos.xmc.xtransformer.train",
                    received=f"a part of a model: PECOS's {pecos[:40]}",
                    fix="use the folder of the whole model; python -m xmc_tf.linear.predict reads PECOS's XLinearModel",
                )
            parts, metadata = read_pecos_folder(folder)
            model = cls(parts, metadata, where=folder)
            model.asked_runtime = runtime
            return model
        metadata = read_metadata(folder)
        if metadata.model != "XTransformer":
            raise InputError(
                f"{folder} is not an XR-Transformer model", expected="a model of xmc_tf.train",
                received="a linear model"
                if metadata.model == "XLinear"
                else f"a model {metadata.content.get('model')!r}",
                fix="use python -m xmc_tf.linear.predict (in Python: XRLinear.load) for linear models",
            )  # fmt: skip
        model = cls.at(folder, metadata)
        if ENCODER not in model.parts:
            raise InputError(f"{folder}: encoder/ is missing", fix="the folder is incomplete: copy it again")
        model.asked_runtime = runtime
        model.names = read_names(folder, metadata.nr_labels)
        return model

    def encode(
        self,
        texts: DocumentsLike,
        *,
        batch_tokens: int = 16384,
        truncate_length: int | None = None,
        **columns: Unpack[FrameColumns],
    ) -> np.ndarray:
        """Return the embeddings of texts, scaled to length 1, as a float32 array of texts × dimensions.

        Args:
            texts: documents, as in :meth:`predict`.
            batch_tokens: number of tokens to encode at a time.
            truncate_length: maximum number of tokens that the encoder reads at once (default: as in training).
            **columns: columns of a DataFrame, as in :meth:`predict`.
        """
        return rows_of_length(
            1.0, vectors_of(self, self._read(texts, columns=columns).only_texts(), batch_tokens, truncate_length)
        )

    def _checked(self, read: ReadDocuments, X: Any, options: PredictionOptions) -> tuple[Any, Features | None]:
        texts = read.only_texts()
        return texts, own_features(self, texts, X, method_of(self, options))

    def _scored(self, documents: Any, X: Features | None, options: PredictionOptions) -> Scored:
        found, vectors = scored(self, documents, X, options)
        return found._replace(vectors=rows_of_length(1.0, vectors))

    @property
    def _allowed(self) -> np.ndarray | None:
        return self.output_labels

    def _only(self, chosen: np.ndarray, evidence: ProbabilityModel | None) -> Self:
        out = self.with_shared_parts()
        if RANKER in self.parts:
            out.ranker = self.ranker.only(labels_of_rankers(chosen, self.ranker.nr_labels))
        out.evidence, out.output_labels = evidence, chosen
        return out

    def _restrict(self, chosen: np.ndarray | None) -> None:
        self.output_labels = chosen
        if RANKER in self.parts:
            known = None if chosen is None else labels_of_rankers(chosen, self.ranker.nr_labels)
            self.ranker.set_output_constraint(known)

    def export_parts(self) -> "ModelParts":
        """Return the parts of the model that a SavedModel contains."""
        from xmc_tf.models.saved_model import parts_of

        return parts_of(self)

    def explain(
        self,
        text: str | DocumentsLike,
        k: int = 5,
        *,
        X: Any = None,
        beam_size: int | None = None,
    ) -> Explanation:
        """Explain the best labels of a text: the words, the embedding and the path through the tree that led to them.

        Example:
            >>> print(model.explain("gradient of a sparse matrix", k=1))

        Args:
            text: a single document: a text, or a list or DataFrame with one document.
            k: number of labels to explain.
            X: features of the document; required if the model was trained with features.
            beam_size: number of nodes kept at each level above the labels (default: the model's setting).
        """
        options = PredictionOptions(beam_size=beam_size, only_topk=k, threads=1)
        return explain_encoded(self, XTransformer.predict, one_text(self._read(text).only_texts()), X, options)

    def export_onnx(self, folder: str | Path, *, precision: str = "fp32") -> None:
        """Write a model that runs its encoder with ONNX Runtime and does not need TensorFlow.

        Example:
            >>> model.export_onnx("in-onnx")
            >>> load("in-onnx").best(["gradient of a sparse matrix"], k=3)

        Args:
            folder: the new model's folder.
            precision: number format of the encoder's weight matrices: "fp32", or "int8", which is faster and less
                exact.
        """
        from xmc_tf.encoder.onnx.encoder import GRAPH, write_encoder

        if pecos_class(self.folder) or (self.parts[ENCODER] / GRAPH).is_file():
            raise InputError(
                f"{self.folder} cannot be exported for ONNX Runtime", expected="a model that xmc_tf has trained",
                received="a PECOS folder" if pecos_class(self.folder) else "a model that was already exported",
                fix="convert a PECOS model first: xmc_tf.load(folder).save(new_folder)",
            )  # fmt: skip

        def write(place: Path) -> None:
            write_encoder(self.parts[ENCODER], place, pooling=self.metadata.pooling, precision=precision)
            self.tokenizer.save(place)

        parts: dict[str, Any] = {name: partial(link_part, source) for name, source in self.parts.items()}
        parts.pop(TRAINING, None)  # a server trains nothing
        write_model_folder(folder, parts | {ENCODER: write}, self.names, self.metadata)

    def _for_audit(self, read: ReadDocuments, X: Any, threads: int) -> tuple[Features, RankerParams]:
        options, lines = PredictionOptions(threads=threads), read.only_texts()
        given = own_features(self, lines, X, self.metadata.ensemble_method)
        vectors = vectors_of(self, lines, options.batch_tokens)
        params = XTransformerParams.from_json(self.metadata.train_params).ranker_params
        return ranker_features(self, lines, given, vectors, options), params


def _held_out(validation: tuple[Any, ...], nr_labels: int, names: Sequence[str] | None) -> Documents:
    texts, labels, *features = validation
    X = as_features(features[0]) if features and features[0] is not None else None
    read = read_documents(texts, labels, name="validation")
    truth = true_labels(read.labelled(), read.only_texts(), nr_labels, names)
    return Documents(read.only_texts(), truth[:, :nr_labels], X)
