"""The steps of a training, each a stage: what it depends on, and what makes it."""

import dataclasses
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TokenStore, as_features, load_matrix, save_matrix
from xmc_tf.params import MatcherParams, MatcherPredParams, override_levels, per_level
from xmc_tf.pipeline.checksums import files_of
from xmc_tf.pipeline.devices import precision
from xmc_tf.pipeline.embeddings import embed_documents
from xmc_tf.pipeline.inputs import Recipe, TrainingInputs
from xmc_tf.pipeline.rankers import ranker_pred_params, rankers_of
from xmc_tf.pipeline.stages import Facts, Stage, Stages
from xmc_tf.pipeline.trees import cluster_labels, read_tree, write_tree
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.encoder import Encoder, TextTokenizer

# Of the matcher's parameters those that change how it computes or what it tells, and not what comes out.
_WITHOUT_EFFECT = (
    "batch_gen_workers", "logging_steps", "pre_tokenize", "pre_tensorize_labels", "use_gpu", "checkpoint_dir",
    "cache_dir", "max_num_labels_in_gpu", "model_shortcut", "init_model_dir",
)  # fmt: skip


class Steps:
    """The steps, with what they share; all ranks take the same ones in the same order.

    What is expensive (encoder, tokens) is loaded or made only when a stage is made that needs it.

    Args:
        given: the data.
        recipe: how it is done.
        stages: where results lie.
        checksums: of the data.
    """

    def __init__(self, given: TrainingInputs, recipe: Recipe, stages: Stages, checksums: dict[str, str | None]) -> None:
        self.given, self.recipe, self.stages, self.checksums = given, recipe, stages, checksums
        self.communicator: Communicator = stages.communicator
        self._tokenizer_in = Path()

    # What a document is.

    def features(self) -> Stage | None:
        """TF-IDF of the texts, where they have no features yet and shall have some."""
        recipe, texts = self.recipe, self.given.documents.texts
        if recipe.tfidf is None:
            return None

        def make(folder: Path) -> Facts:
            from xmc_tf.features import Tfidf

            tfidf = Tfidf.fit(texts, recipe.tfidf, threads=recipe.threads)
            X = tfidf.transform(texts, threads=recipe.threads)
            save_matrix(folder / "X.npz", X)
            tfidf.save(folder / "features")
            return {"said": f"{X.shape[0]:,} × {X.shape[1]:,}, {X.nnz:,} weights"}

        return self.stages.run("features", make, inputs={"texts": self.checksums["texts"], "params": recipe.tfidf})

    def pretrained(self) -> Stage:
        """The encoder to begin with, copied to where all ranks find it, and the next run too."""
        first = self.recipe.first_level
        name = first.init_model_dir or first.model_shortcut

        def make(folder: Path) -> Facts:
            from xmc_tf.encoder import Encoder, TextTokenizer

            encoder = Encoder.load(name, pooling=first.pooling, cache_dir=first.cache_dir)
            tokenizer = TextTokenizer.load(name, cache_dir=first.cache_dir)
            encoder.check_tokenizer(tokenizer.vocabulary_size)
            encoder.save(folder / "encoder")
            tokenizer.save(folder / "encoder")
            said = f"{encoder.architecture}, {encoder.dim} wide, pooling {encoder.pooling}"
            return {"dim": encoder.dim, "max_length": encoder.max_length, "said": said}

        stage = self.stages.run(
            "encoder", make, inputs={"encoder": name, "files": files_of(name), "pooling": first.pooling}
        )
        if self._longest > stage.facts["max_length"]:
            raise InputError(
                "truncate_length is more than the encoder can read",
                expected=f"at most {stage.facts['max_length']:,}",
                received=f"{self._longest:,}",
                fix=f"--truncate-length {stage.facts['max_length']}",
            )
        self._tokenizer_in = stage.folder / "encoder"
        return stage

    @cached_property
    def tokenizer(self) -> "TextTokenizer":
        """That of the encoder."""
        from xmc_tf.encoder import TextTokenizer

        return TextTokenizer.load(self._tokenizer_in)

    @cached_property
    def store(self) -> TokenStore:
        """The documents' tokens; made once a host, and taken again where they are the same."""
        return self._tokens("tokens", self.given.documents.texts)

    # The encoder, fitted to the labels.

    def first_tree(self, features: Stage | None, pretrained: Stage) -> Stage:
        """The tree that the encoder is fine-tuned on: given, or by label features, or by the documents' features."""
        given, params = self.given, self.recipe.params.preliminary_indexer_params
        if given.tree is not None:
            tree = given.tree
            inputs = {"tree": self.checksums["tree"]}
            return self.stages.run("first-tree", lambda folder: write_tree(folder, tree), inputs=inputs)
        if given.label_features is not None:
            features, vectors = None, None
        elif features is None and given.documents.X is None:
            # Nothing but text: what the encoder makes of it before it has learned anything.
            vectors = self.embeddings(pretrained, name="first-embeddings")
        else:
            vectors = None

        def make(folder: Path) -> Facts:
            X = None if given.label_features is not None else self.all_features(features, vectors)
            return cluster_labels(
                folder, given.documents.Y, X, params, label_features=given.label_features, threads=self.recipe.threads
            )  # fmt: skip

        return self.stages.run("first-tree", make, inputs=self._labels_and(params), after=_there(features, vectors))

    def fine_tuned(self, pretrained: Stage, tree: Stage, strategy: Callable[[], "CollectiveStrategy"]) -> Stage:
        """The encoder fine-tuned level by level, and the heads of the levels."""
        recipe, given = self.recipe, self.given
        label_tree = read_tree(tree.folder)
        levels = self._levels(label_tree)
        params = self._params_of_levels(levels)
        pred_params = self._pred_params_of_levels(levels)

        def make(folder: Path) -> Facts:
            from xmc_tf.matcher.matcher import Matcher
            from xmc_tf.matcher.training import Validation

            validation = None
            if given.validation is not None:
                validation = Validation(
                    self._tokens("validation-tokens", given.validation.texts), given.validation.Y
                )  # fmt: skip
            with precision(params[0].mixed_precision):
                encoder = self.load_encoder(pretrained)
            matcher = Matcher.train(
                strategy(), encoder, self.tokenizer.pad_id, self.store, label_tree, given.documents.Y,
                params, pred_params, folder=folder / "levels", max_match_clusters=recipe.params.max_match_clusters,
                validation=validation, seed=recipe.seed, logdir=recipe.logdir, names=given.names,
            )  # fmt: skip
            matcher.save(folder / "head")
            on_first_rank(self.communicator, lambda: self._finish_encoder(encoder, folder))
            sizes = " > ".join(f"{head.nr_nodes:,}" for head in matcher.heads)
            steps = sum(result.steps for result in matcher.results)
            return {"of_labels": matcher.labels is not None, "said": f"{sizes} nodes, {steps:,} steps"}

        inputs = {
            "texts": self.checksums["texts"],
            "labels": self.checksums["labels"],
            "validation": [self.checksums["validation texts"], self.checksums["validation labels"]],
            "truncate_length": self._longest,
            "params": [_with_effect(one) for one in params],
            "pred_params": list(pred_params),
            "levels": levels,
            "seed": recipe.seed,
        }
        return self.stages.run("fine-tuning", make, inputs=inputs, after=[pretrained, tree], by_all=True)

    def load_encoder(self, stage: Stage) -> "Encoder":
        """The encoder of a stage."""
        from xmc_tf.encoder import Encoder

        return Encoder.load(stage.folder / "encoder", hidden_dropout_prob=self.recipe.first_level.hidden_dropout_prob)

    # The rankers.

    def embeddings(self, encoded: Stage, name: str = "embeddings") -> Stage:
        """The documents' vectors, as long as they shall be beside the other features."""
        length = self.recipe.params.vector_length
        return self.stages.run(
            name,
            lambda folder: embed_documents(
                self.load_encoder(encoded), self.store, folder, self.communicator, length=length
            ),
            inputs={"texts": self.checksums["texts"], "truncate_length": self._longest, "length": length},
            after=[encoded],
            by_all=True,
        )

    def refined_tree(self, features: Stage | None, embeddings: Stage) -> Stage:
        """The rankers' tree, by features and vectors."""
        params = self.recipe.params.refined_indexer_params

        def make(folder: Path) -> Facts:
            X = self.all_features(features, embeddings)
            return cluster_labels(folder, self.given.documents.Y, X, params, threads=self.recipe.threads)

        return self.stages.run("tree", make, inputs=self._labels_and(params), after=_there(features, embeddings))

    def rankers(self, features: Stage | None, embeddings: Stage, tree: Stage) -> Stage:
        """The rankers over the tree."""
        recipe, params = self.recipe, self.recipe.params.ranker_params
        wishes = {name: getattr(recipe, name) for name in ("beam_size", "only_topk", "post_processor")}

        def make(folder: Path) -> Facts:
            label_tree = read_tree(tree.folder)
            return rankers_of(
                self.all_features(features, embeddings),
                self.given.documents.Y,
                label_tree,
                params,
                ranker_pred_params(params, recipe.pred_params.ranker_params, label_tree, **wishes),
                self.communicator,
                folder,
                threads=recipe.threads,
                seed=recipe.seed,
            )

        inputs = self._labels_and(params) | {
            "pred_params": recipe.pred_params.ranker_params,
            "wishes": wishes,
            "seed": recipe.seed,
        }
        return self.stages.run("rankers", make, inputs=inputs, after=_there(features, embeddings, tree), by_all=True)

    def all_features(self, features: Stage | None, vectors: Stage | None) -> Features:
        """The documents' features and vectors side by side, mapped from where they lie."""
        sparse = dense = None
        if self.given.documents.X is not None:
            sparse, dense = self.given.documents.X.sparse, self.given.documents.X.dense
        elif features is not None:
            sparse = as_features(load_matrix(features.folder / "X.npz", name="features")).sparse
        return side_by_side(sparse, dense, load_matrix(vectors.folder / "E.npy") if vectors else None)

    # Smaller things.

    @property
    def _longest(self) -> int:
        """Most tokens of a document."""
        return self.recipe.last_prediction.truncate_length

    def _tokens(self, name: str, texts: Any) -> TokenStore:
        from xmc_tf.encoder import tokenize_file

        found: list[TokenStore] = []
        with self.stages.aside(name, lambda: f"{int(found[0].lengths.sum()):,} of {len(found[0]):,} documents"):
            folder, longest = self.stages.folder / name, self._longest
            found.append(
                tokenize_file(texts, self.tokenizer, folder, max_length=longest, communicator=self.communicator)
            )
        return found[0]

    def _levels(self, tree: LabelTree) -> int:
        """How many levels of the tree are fine-tuned on."""
        most = self.recipe.params.max_match_clusters
        sizes = tree.level_sizes[1:]
        return next((t for t, size in enumerate(sizes) if size > most), len(sizes))

    def _params_of_levels(self, levels: int) -> tuple[MatcherParams, ...]:
        chain = per_level(self.recipe.params.matcher_params_chain, levels, "matcher_params_chain")
        scales = self.recipe.steps_scale or (1.0,) * levels
        if len(scales) != levels or min(scales) <= 0:
            raise InputError(
                "--steps-scale does not fit the tree",
                expected=f"{levels} numbers above 0, one for each level that is fine-tuned on",
                received=" ".join(f"{scale:g}" for scale in scales),
            )
        return tuple(_scaled(one, scale) for one, scale in zip(chain, scales, strict=True))

    def _pred_params_of_levels(self, levels: int) -> tuple[MatcherPredParams, ...]:
        recipe = self.recipe
        return override_levels(
            recipe.pred_params.matcher_params_chain, levels,
            beam_size=recipe.beam_size, only_topk=recipe.only_topk, post_processor=recipe.post_processor,
        )  # fmt: skip

    def _finish_encoder(self, encoder: "Encoder", folder: Path) -> None:
        encoder.save(folder / "encoder")
        self.tokenizer.save(folder / "encoder")
        shutil.rmtree(folder / "levels", ignore_errors=True)

    def _labels_and(self, params: Any) -> dict[str, Any]:
        sums = self.checksums
        return {"labels": sums["labels"], "X": sums["features"], "Z": sums["label features"], "params": params}


def side_by_side(sparse: Any, dense: Any, vectors: Any) -> Features:
    """Features, of which some may be missing, with the encoder's vectors as the last columns."""
    if dense is not None and vectors is not None:
        dense = np.hstack([dense, vectors])
    elif dense is None:
        dense = vectors
    return as_features((sparse, dense))


def _there(*stages: Stage | None) -> list[Stage]:
    return [stage for stage in stages if stage is not None]


def _scaled(params: MatcherParams, scale: float) -> MatcherParams:
    return dataclasses.replace(
        params,
        max_steps=round(params.max_steps * scale) if params.max_steps > 0 else params.max_steps,
        num_train_epochs=max(1, round(params.num_train_epochs * scale)),
    )


def _with_effect(params: MatcherParams) -> dict[str, Any]:
    """What decides the result of a level."""
    return {name: value for name, value in params.to_json().items() if name not in _WITHOUT_EFFECT}
