"""The steps of training. Each is a stage, defined by its inputs and the function that computes it."""

import logging
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, JoinedTexts, Texts, TokenStore, as_features, load_matrix
from xmc_tf.encoder.reading import read_config
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.fusion import EvidenceChoice, hidden_labels
from xmc_tf.params.tfidf import FEW, with_rare_words
from xmc_tf.pipeline.devices import choose_precision
from xmc_tf.pipeline.embeddings import embed_documents
from xmc_tf.pipeline.frozen_layers import with_frozen_layers
from xmc_tf.pipeline.held_out import AUXILIARY_TREES, held_out_documents, without_labels
from xmc_tf.pipeline.inputs import Recipe, TrainingInputs, files_of
from xmc_tf.pipeline.level_params import level_params, with_effect, without_reading
from xmc_tf.pipeline.stages import Record, Stage, Stages
from xmc_tf.pipeline.trees import cluster_labels, read_tree, train_and_save_rankers, trees_over, write_tree
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.rankers.distributed.training import threads_of_rank
from xmc_tf.rankers.problems import level_pred_params
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.store.arrays import open_sparse

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.encoder import Encoder, TextTokenizer


_LOG = logging.getLogger(__name__)
FINE_TUNING = "fine-tuning"


class TrainingSteps:
    """The training steps, which all ranks run in the same order; encoder and tokens are loaded only if needed."""

    def __init__(
        self,
        inputs: TrainingInputs,
        recipe: Recipe,
        stages: Stages,
        checksums: dict[str, str | None],
        evidence: EvidenceChoice,
    ) -> None:
        self.inputs, self.recipe, self.stages, self.checksums = inputs, recipe, stages, checksums
        self.evidence = evidence
        self.communicator: Communicator = stages.communicator
        self._tokenizer_in = Path()
        self._frozen: TokenStore | None = None

    # Documents: features and tokens.

    def features(self) -> Stage | None:
        """Compute TF-IDF features of the texts, if the options include TF-IDF."""
        recipe, texts, params, further = self.recipe, self.inputs.documents.texts, self.recipe.tfidf, self._unlabelled
        if params is None:
            return None
        if len(further):
            assert isinstance(texts, JoinedTexts)
            texts, params = JoinedTexts([further, *texts.sources], texts.nr_names), with_rare_words(params)

        def make(folder: Path) -> Record:
            from xmc_tf.features.over_ranks import vectorize_over_ranks

            threads = threads_of_rank(self.communicator, recipe.threads)
            X = vectorize_over_ranks(
                self.communicator, texts, params, folder / "features", folder / "X", threads=threads
            )  # fmt: skip
            return {"summary": f"{X.shape[0]:,} × {X.shape[1]:,}, {X.nnz:,} weights"}

        inputs = {"texts": self.checksums["texts"], "params": params}
        if len(further):
            inputs["unlabelled"] = self.checksums["unlabelled"]
        return self.stages.run("features", make, inputs=inputs, by_all=True)

    def pretrained(self) -> Stage:
        """Copy the pretrained encoder to a stage's folder, from which all ranks and resumed runs can load it."""
        first = self.recipe.first_level
        name = first.init_model_dir or first.model_shortcut

        def make(folder: Path) -> Record:
            from xmc_tf.encoder import Encoder, TextTokenizer

            encoder = Encoder.load(name, pooling=first.pooling, cache_dir=first.cache_dir)
            tokenizer = TextTokenizer.load(
                name, cache_dir=first.cache_dir, prompt=first.prompt, prompt_name=first.prompt_name
            )
            encoder.check_tokenizer(tokenizer.vocabulary_size)
            encoder.leave_out_prompt(tokenizer.nr_before_text)
            length, made_for = self.recipe.reading.max_length, tokenizer.made_for
            if made_for is not None and length > made_for:
                said = "--truncate-length %s exceeds the %s tokens for which the encoder was made (max_seq_length)"
                _LOG.warning(said, f"{length:,}", f"{made_for:,}")
            encoder.save(folder / "encoder")
            tokenizer.save(folder / "encoder")
            said = f", prompt {tokenizer.prompt!r}" if tokenizer.prompt else ""
            summary = f"{encoder.architecture}, {encoder.dim} wide, {encoder.modules}{said}"
            return {"dim": encoder.dim, "max_length": encoder.max_length, "summary": summary}

        files = on_first_rank(self.communicator, lambda: files_of(name))
        asked = {one: value for one in ("prompt", "prompt_name") if (value := getattr(first, one)) is not None}
        inputs = {"encoder": name, "files": files, "pooling": first.pooling, **asked}
        stage = self.stages.run("encoder", make, inputs=inputs)
        if self.recipe.reading.max_length > stage.record["max_length"]:
            raise InputError(
                "truncate_length exceeds the maximum length of the encoder",
                expected=f"at most {stage.record['max_length']:,}",
                received=f"{self.recipe.reading.max_length:,}",
                fix=f"use --truncate-length {stage.record['max_length']}",
            )
        self._tokenizer_in = stage.folder / "encoder"
        if self.recipe.params.do_fine_tune:
            config = read_config(EncoderSource(self._tokenizer_in, "encoder"))
            config.architecture.frozen_layers(config, first.train_layers)  # raises an error if it cannot be
        return stage

    @cached_property
    def tokenizer(self) -> "TextTokenizer":
        from xmc_tf.encoder import TextTokenizer

        tokenizer = TextTokenizer.load(self._tokenizer_in)
        tokenizer.memory = self.inputs.tokens
        return tokenizer

    @cached_property
    def store(self) -> TokenStore:
        """The tokens of the documents, computed once on each host."""
        return self._tokens("tokens", self.inputs.documents.texts)

    @cached_property
    def held_out(self) -> np.ndarray:
        """The held-out documents for learning probabilities; empty if the model has no probabilities."""
        if not self.evidence.probabilities:
            return np.zeros(0, np.int64)
        recipe = self.recipe
        return held_out_documents(
            self.inputs.documents.nr_documents, recipe.seed, fine_tuned=recipe.params.do_fine_tune
        )  # fmt: skip

    # The encoder, fitted to the labels.

    def first_tree(self, features: Stage | None, pretrained: Stage) -> Stage:
        """Return the stage of the tree for fine-tuning: a given tree, or one built from label or document features."""
        data, params = self.inputs, self.recipe.params.preliminary_indexer_params
        if data.tree is not None:
            tree = data.tree
            inputs = {"tree": self.checksums["tree"]}
            return self.stages.run("first-tree", lambda folder: write_tree(folder, tree), inputs=inputs)
        if data.label_features is not None:
            features, vectors = None, None
        elif features is None and data.documents.X is None:
            # There is only text: use the embeddings of the pretrained encoder.
            vectors = self.embeddings(pretrained, name="first-embeddings")
        else:
            vectors = None

        def make(folder: Path) -> Record:
            X = None if data.label_features is not None else self.all_features(features, vectors)
            return cluster_labels(
                folder, data.documents.Y, X, params, self.communicator,
                label_features=data.label_features, threads=self.recipe.threads,
            )  # fmt: skip

        after = _there(features, vectors)
        return self.stages.run("first-tree", make, inputs=self._labels_and(params), after=after, by_all=True)

    def fine_tuned(self, pretrained: Stage, tree: Stage, strategy: Callable[[], "CollectiveStrategy"]) -> Stage:
        """Fine-tune the encoder and train a label head, level by level."""
        recipe, own = self.recipe, self.inputs
        label_tree = read_tree(tree.folder)
        params, pred_params = level_params(recipe, label_tree)

        def make(folder: Path) -> Record:
            from xmc_tf.matcher.matcher import Matcher
            from xmc_tf.matcher.progress import named_curves
            from xmc_tf.matcher.tasks import MatcherData, MatcherSettings, Validation

            validation = None
            encoder = self.load_encoder(pretrained)
            encoder.adapt(recipe.first_level.lora_rank, recipe.seed)
            precision = choose_precision(self.communicator, params[0].mixed_precision)
            store = self._with_frozen_layers(encoder, precision)
            if own.validation is not None:
                tokens = self._tokens("validation-tokens", own.validation.texts)
                tokens = with_frozen_layers(encoder, tokens, self.stages, "frozen-layers-validation")
                validation = Validation(tokens, own.validation.Y)
            data = MatcherData(
                store, own.documents.Y, label_tree, self.tokenizer.pad_id, validation=validation, names=own.names,
                rows=self._tuned_on,
            )  # fmt: skip
            settings = MatcherSettings(params, pred_params, recipe.params.max_match_clusters, recipe.seed)
            matcher = Matcher.train(
                strategy(), encoder, data, settings, folder=folder / "levels", logdir=recipe.logdir
            )  # fmt: skip
            matcher.save(folder / "head")
            on_first_rank(self.communicator, lambda: self._finish_encoder(encoder, folder))
            sizes = " > ".join(f"{head.nr_nodes:,}" for head in matcher.heads)
            steps = sum(result.steps for result in matcher.results)
            curves = named_curves([result.curves for result in matcher.results])
            summary = f"{sizes} nodes, {steps:,} steps"
            of_labels = matcher.labels is not None
            return {"of_labels": of_labels, "summary": summary, "curves": curves, "precision": precision}

        inputs = {
            "texts": self.checksums["texts"],
            "labels": self.checksums["labels"],
            "validation": [self.checksums["validation texts"], self.checksums["validation labels"]],
            "params": [with_effect(one) for one in params],
            "pred_params": [without_reading(one) for one in pred_params],
            "seed": recipe.seed,
            **({"held out": len(self.held_out)} if len(self.held_out) else {}),
            **({"names left out": count} if (count := len(self._names_without_documents)) else {}),
        } | self._reading
        stage = self.stages.run(FINE_TUNING, make, inputs=inputs, after=[pretrained, tree], by_all=True)
        # The levels' checkpoints are removed only after the stage is complete, because it resumes from them.
        on_first_rank(self.communicator, lambda: shutil.rmtree(stage.folder / "levels", ignore_errors=True))
        return stage

    def _with_frozen_layers(self, encoder: "Encoder", precision: str) -> TokenStore:
        """Set the encoder's precision, and return the documents with the output of its frozen layers, if it has any."""
        encoder.compute_in(precision)
        self._frozen = with_frozen_layers(encoder, self.store, self.stages, "frozen-layers")
        return self._frozen

    def load_encoder(self, stage: Stage) -> "Encoder":
        from xmc_tf.encoder import Encoder

        first = self.recipe.first_level
        encoder = Encoder.load(stage.folder / "encoder", hidden_dropout_prob=first.hidden_dropout_prob)
        encoder.freeze(first.train_layers)
        return encoder

    # The rankers.

    def embeddings(self, encoded: Stage, name: str = "embeddings") -> Stage:
        """Compute the documents' embeddings, scaled to the length ``vector_length`` of the parameters."""
        length = self.recipe.params.vector_length

        def make(folder: Path) -> Record:
            encoder, store = self.load_encoder(encoded), self.store
            if encoded.name == FINE_TUNING and encoder.frozen_layers is not None:
                store = self._frozen or self._with_frozen_layers(encoder, encoded.record["precision"])
                encoder.compute_in("off")
            combine = self.recipe.reading.combine
            return embed_documents(encoder, store, folder, self.communicator, length=length, combine=combine)

        inputs = {"texts": self.checksums["texts"], "length": length} | self._reading
        return self.stages.run(name, make, inputs=inputs, after=[encoded], by_all=True)

    def refined_tree(self, features: Stage | None, embeddings: Stage, number: int = 0) -> Stage:
        """Build one of the rankers' label trees from features and embeddings."""
        params = self.recipe.params.ranker_trees[number]
        name = "tree" if number == 0 else f"tree-{number}"

        def make(folder: Path) -> Record:
            X = self.all_features(features, embeddings)
            return cluster_labels(
                folder, self.inputs.documents.Y, X, params, self.communicator,
                threads=self.recipe.threads,
            )  # fmt: skip

        after = _there(features, embeddings)
        return self.stages.run(name, make, inputs=self._labels_and(params), after=after, by_all=True)

    def rankers(self, features: Stage | None, embeddings: Stage, trees: Sequence[Stage]) -> Stage:
        """Train the rankers over the trees."""
        inputs = {"overrides": self.recipe.prediction.search}
        return self._ranker_stage("rankers", features, embeddings, trees, inputs)

    def rankers_without_held_out(self, features: Stage | None, embeddings: Stage, trees: Sequence[Stage]) -> Stage:
        """Train auxiliary rankers without the held-out documents. They have at most ``AUXILIARY_TREES`` trees."""
        inputs = {"overrides": self.recipe.prediction.search, "held out": len(self.held_out)}
        return self._ranker_stage("held-out", features, embeddings, trees[:AUXILIARY_TREES], inputs, self._trained_on)

    def _ranker_stage(
        self, name: str, features: Stage | None, embeddings: Stage, trees: Sequence[Stage], inputs: dict[str, Any],
        rows: np.ndarray | None = None,
    ) -> Stage:  # fmt: skip
        """Train rankers on the documents in ``rows``, or on all documents if it is None."""
        recipe, params = self.recipe, self.recipe.params.ranker_params

        def make(folder: Path) -> Record:
            label_trees = [read_tree(tree.folder) for tree in trees]
            X, Y, pred = (
                self.all_features(features, embeddings),
                self.inputs.documents.Y,
                recipe.pred_params.ranker_params,
            )
            if rows is not None:
                X, Y = X.rows(rows), self._without_held_out(rows)
                own = 1 if recipe.params.fix_clustering else 0  # trees that are given
                label_trees[own:] = trees_over(X, Y, recipe.params.ranker_trees[own : len(trees)], recipe.threads)
            return train_and_save_rankers(
                X, Y, label_trees, params,
                [level_pred_params(params, pred, tree.depth, recipe.prediction) for tree in label_trees],
                self.communicator, folder, threads=recipe.threads, seed=recipe.seed,
            )  # fmt: skip

        inputs |= self._labels_and(params) | {"pred_params": recipe.pred_params.ranker_params, "seed": recipe.seed}
        return self.stages.run(name, make, inputs=inputs, after=_there(features, embeddings, *trees), by_all=True)

    def all_features(self, features: Stage | None, vectors: Stage | None) -> Features:
        """Return the documents' features and embeddings side by side; files are memory-mapped if possible."""
        sparse = dense = None
        if self.inputs.documents.X is not None:
            sparse, dense = self.inputs.documents.X.sparse, self.inputs.documents.X.dense
        elif features is not None:
            X = open_sparse(features.folder / "X")
            sparse = as_features(X[len(self._unlabelled) :] if len(self._unlabelled) else X).sparse
        return side_by_side(sparse, dense, load_matrix(vectors.folder / "E.npy") if vectors else None)

    # Helpers.

    @property
    def _unlabelled(self) -> Texts:
        """Texts without labels, on which the vectorizer is fitted too; none if there are documents enough."""
        return self.inputs.unlabelled if self.inputs.documents.nr_documents < FEW else ()

    @property
    def _trained_on(self) -> np.ndarray:
        """The rows of all documents that are not held out, followed by those of the label names."""
        return np.setdiff1d(np.arange(self.inputs.documents.Y.shape[0]), self.held_out, assume_unique=True)

    @property
    def _tuned_on(self) -> np.ndarray | None:
        """The rows to fine-tune on; None: all. They leave out the names of labels without documents.

        Otherwise the encoder learns to tell these names from all documents, and finds fewer of these labels.
        """
        left_out = self._names_without_documents
        if not len(left_out) and not len(self.held_out):
            return None
        return np.setdiff1d(self._trained_on, left_out, assume_unique=True)

    @cached_property
    def _has_documents(self) -> np.ndarray:
        """Whether each label has documents, not counting its names: bool [labels]."""
        documents = self.inputs.documents
        Y = csr_matrix(documents.Y)
        return np.bincount(Y.indices[: Y.indptr[documents.nr_documents]], minlength=Y.shape[1]) > 0

    @cached_property
    def _names_without_documents(self) -> np.ndarray:
        """The rows of the names of labels that have no documents."""
        first = self.inputs.documents.nr_documents
        labels = csr_matrix(self.inputs.documents.Y)[first:].indices  # each name has one
        return first + np.flatnonzero(~self._has_documents[labels])

    def _without_held_out(self, rows: np.ndarray) -> csr_matrix:
        """Return the labels of ``rows`` for the auxiliary rankers, which learn some labels only from their names."""
        documents = self.inputs.documents
        Y = csr_matrix(documents.Y)
        if not documents.nr_names:
            return Y[rows]
        return without_labels(Y[rows], len(rows) - documents.nr_names, hidden_labels(self._has_documents, 0))

    @property
    def _reading(self) -> dict[str, Any]:
        """The options for reading documents, as an input of stages."""
        reading = self.recipe.reading
        windows = {"long_texts": reading.combine, "max_windows": reading.max_windows} if reading.max_windows > 1 else {}
        return {"truncate_length": reading.max_length} | windows

    def _tokens(self, name: str, texts: Any) -> TokenStore:
        from xmc_tf.encoder import tokenize_file

        found: list[TokenStore] = []
        with self.stages.log_step(name, lambda: _counts(found[0])):
            reading = self.recipe.reading
            store = tokenize_file(
                texts, self.tokenizer, self.stages.folder / name,
                max_length=reading.max_length, max_windows=reading.max_windows, communicator=self.communicator,
            )  # fmt: skip
            found.append(store)
        return found[0]

    def _finish_encoder(self, encoder: "Encoder", folder: Path) -> None:
        encoder.save(folder / "encoder")
        self.tokenizer.save(folder / "encoder")

    def _labels_and(self, params: Any) -> dict[str, Any]:
        sums = self.checksums
        return {"labels": sums["labels"], "X": sums["features"], "Z": sums["label features"], "params": params}


def _counts(store: TokenStore) -> str:
    windows = "" if store.nr_documents == len(store) else f", {len(store):,} windows"
    return f"{int(store.lengths.sum()):,} tokens in {store.nr_documents:,} documents{windows}"


def side_by_side(sparse: Any, dense: Any, vectors: Any) -> Features:
    """Return sparse and dense features, either of which may be None, with the embeddings as the last columns."""
    if dense is not None and vectors is not None:
        dense = np.hstack([dense, vectors])
    elif dense is None:
        dense = vectors
    return as_features((sparse, dense))


def _there(*stages: Stage | None) -> list[Stage]:
    return [stage for stage in stages if stage is not None]
