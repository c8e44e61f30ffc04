"""From text and labels to a model's parts: the steps in their order, each a stage that is made once."""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TokenStore, as_features, load_matrix, save_matrix
from xmc_tf.linear.model_folder import versions
from xmc_tf.params import MatcherParams, XTransformerParams
from xmc_tf.pipeline.checksums import files_of
from xmc_tf.pipeline.ensembles import chosen_method
from xmc_tf.pipeline.inputs import Recipe, TrainingInputs
from xmc_tf.pipeline.rankers import ranker_pred_params, rankers_of
from xmc_tf.pipeline.stages import Facts, Stage, Stages
from xmc_tf.pipeline.trees import cluster_labels, read_tree, write_tree
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.encoder import Encoder, TextTokenizer

_LOG = logging.getLogger(__name__)

# Of the matcher's parameters those that change how it computes, or what it tells, and not what comes out.
_WITHOUT_EFFECT = (
    "batch_gen_workers", "logging_steps", "pre_tokenize", "pre_tensorize_labels", "use_gpu", "checkpoint_dir",
    "cache_dir", "max_num_labels_in_gpu",
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What a training has made.

    Args:
        parts: where each part of the model folder lies.
        facts: for its ``params.json``.
    """

    parts: dict[str, Path]
    facts: Facts


def make_parts(
    given: TrainingInputs,
    recipe: Recipe,
    stages: Stages,
    strategy: Callable[[], "CollectiveStrategy"],
) -> Made:
    """Makes all parts of a model, or finds them made; all ranks call it together.

    Args:
        given: the data, the same on all ranks.
        recipe: how it is done.
        stages: where the parts lie.
        strategy: makes the strategy, where the encoder is fine-tuned: a frozen one needs no collectives on tensors.
    """
    work = _Work(given, recipe, stages, given.check(stages.communicator))
    params = recipe.params

    # What a document is: its own features, and its tokens.
    features = work.features()
    pretrained = work.pretrained_encoder()
    encoder, tokenizer = work.load_encoder(pretrained)
    store = work.tokens(tokenizer)

    # The encoder, fitted to the labels.
    first_tree = None
    encoded = pretrained
    if params.do_fine_tune or params.fix_clustering:
        first_tree = work.first_tree(features, pretrained, encoder, store)
    if params.do_fine_tune:
        assert first_tree is not None
        encoded = work.fine_tuned(pretrained, first_tree, encoder, tokenizer, store, strategy())
        encoder, _ = work.load_encoder(encoded)
    parts = {"encoder": encoded.folder / "encoder"}
    if params.do_fine_tune:
        parts["head"] = encoded.folder / "head"
    facts = work.facts() | {"embedding_dim": encoder.dim, "head_level": encoded.facts.get("head_level")}
    if params.only_encoder:
        if first_tree is not None:
            parts["tree"] = first_tree.folder / "tree"
        return Made(parts, facts)

    # The rankers, on features and vectors side by side.
    embeddings = work.embeddings(encoded, encoder, store)
    tree = first_tree if params.fix_clustering else work.refined_tree(features, embeddings)
    assert tree is not None
    rankers = work.rankers(features, embeddings, tree)
    parts |= {"tree": tree.folder / "tree", "ranker": rankers.folder / "ranker"}
    if first_tree is not None and tree is not first_tree and "head" in parts:
        parts["head_tree"] = first_tree.folder / "tree"
    if recipe.tfidf is not None and features is not None:
        parts["features"] = features.folder / "features"
    numbers = {name: rankers.facts[name] for name in ("nr_features", "nr_dense", "nr_weights")}
    return Made(parts, facts | numbers)


class _Work:
    """The steps, with what they share."""

    def __init__(self, given: TrainingInputs, recipe: Recipe, stages: Stages, checksums: dict[str, str | None]) -> None:
        self.given, self.recipe, self.stages, self.checksums = given, recipe, stages, checksums
        self.params: XTransformerParams = recipe.params
        self.communicator: Communicator = stages.communicator
        self._X: Features | None = given.documents.X

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

    def pretrained_encoder(self) -> Stage:
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
            return {"said": f"{encoder.architecture}, {encoder.dim} wide, pooling {encoder.pooling}"}

        inputs = {"encoder": name, "files": files_of(name), "pooling": first.pooling}
        return self.stages.run("encoder", make, inputs=inputs)

    def load_encoder(self, stage: Stage) -> "tuple[Encoder, TextTokenizer]":
        """The encoder of a stage and its tokenizer."""
        from xmc_tf.encoder import Encoder, TextTokenizer

        dropout = self.recipe.first_level.hidden_dropout_prob
        encoder = Encoder.load(stage.folder / "encoder", hidden_dropout_prob=dropout)
        if self.recipe.last_prediction.truncate_length > encoder.max_length:
            raise InputError(
                f"truncate_length is more than the encoder can read: {encoder.architecture}",
                expected=f"at most {encoder.max_length:,}",
                received=f"{self.recipe.last_prediction.truncate_length:,}",
                fix=f"--truncate-length {encoder.max_length}",
            )
        return encoder, TextTokenizer.load(stage.folder / "encoder")

    def tokens(self, tokenizer: "TextTokenizer", held_out: bool = False) -> TokenStore:
        """The documents' tokens; made once a host, and taken again where they are the same."""
        from xmc_tf.encoder import tokenize_file

        documents = self.given.validation if held_out else self.given.documents
        assert documents is not None
        name = "validation-tokens" if held_out else "tokens"
        found: list[TokenStore] = []
        with self.stages.aside(name, lambda: f"{int(found[0].lengths.sum()):,} of {len(found[0]):,} documents"):
            found.append(
                tokenize_file(
                    documents.texts,
                    tokenizer,
                    self.stages.folder / name,
                    max_length=self.recipe.last_prediction.truncate_length,
                    communicator=self.communicator,
                )
            )
        return found[0]

    # The encoder, fitted to the labels.

    def first_tree(self, features: Stage | None, pretrained: Stage, encoder: "Encoder", store: TokenStore) -> Stage:
        """The tree that the encoder is fine-tuned on: given, or by label features, or by the documents' features."""
        given, params = self.given, self.params.preliminary_indexer_params
        if given.tree is not None:
            tree = given.tree
            return self.stages.run(
                "first-tree", lambda folder: write_tree(folder, tree), inputs={"tree": self.checksums["tree"]}
            )
        vectors = None
        if given.label_features is None and features is None and given.documents.X is None:
            # Nothing but text: what the encoder makes of it before it has learned anything.
            vectors = self.embeddings(pretrained, encoder, store, name="first-embeddings")
        before = [stage for stage in (features, vectors) if stage is not None and given.label_features is None]

        def make(folder: Path) -> Facts:
            X = None if given.label_features is not None else self.all_features(features, vectors)
            return cluster_labels(
                folder, given.documents.Y, X, params, label_features=given.label_features, threads=self.recipe.threads
            )  # fmt: skip

        return self.stages.run("first-tree", make, inputs=self._labels_and(params), after=before)

    def fine_tuned(
        self,
        pretrained: Stage,
        first_tree: Stage,
        encoder: "Encoder",
        tokenizer: "TextTokenizer",
        store: TokenStore,
        strategy: "CollectiveStrategy",
    ) -> Stage:
        """The encoder fine-tuned level by level, and the head of the finest level."""
        raise NotImplementedError

    # The rankers.

    def embeddings(self, encoded: Stage, encoder: "Encoder", store: TokenStore, name: str = "embeddings") -> Stage:
        """The documents' vectors."""
        from xmc_tf.pipeline.embeddings import embed_documents

        return self.stages.run(
            name,
            lambda folder: embed_documents(encoder, store, folder, self.communicator),
            inputs={"tokens": store.fingerprint},
            after=[encoded],
            by_all=True,
        )

    def refined_tree(self, features: Stage | None, embeddings: Stage) -> Stage:
        """The rankers' tree, by features and vectors."""
        params = self.params.refined_indexer_params

        def make(folder: Path) -> Facts:
            X = self.all_features(features, embeddings)
            return cluster_labels(folder, self.given.documents.Y, X, params, threads=self.recipe.threads)

        before = [stage for stage in (features, embeddings) if stage is not None]
        return self.stages.run("tree", make, inputs=self._labels_and(params), after=before)

    def rankers(self, features: Stage | None, embeddings: Stage, tree: Stage) -> Stage:
        """The rankers over the tree."""
        recipe, params = self.recipe, self.params.ranker_params

        def make(folder: Path) -> Facts:
            label_tree = read_tree(tree.folder)
            return rankers_of(
                self.all_features(features, embeddings),
                self.given.documents.Y,
                label_tree,
                params,
                self._ranker_pred_params(label_tree),
                self.communicator,
                folder,
                threads=recipe.threads,
                seed=recipe.seed,
            )

        before = [stage for stage in (features, embeddings, tree) if stage is not None]
        inputs = self._labels_and(params) | {
            "features": self.checksums["features"],
            "pred_params": self.recipe.pred_params.ranker_params,
            "wishes": self._wishes(),
            "seed": recipe.seed,
        }
        return self.stages.run("rankers", make, inputs=inputs, after=before, by_all=True)

    def all_features(self, features: Stage | None, vectors: Stage | None) -> Features:
        """The documents' features and vectors side by side, mapped from where they lie."""
        sparse = dense = None
        if self.given.documents.X is not None:
            sparse, dense = self.given.documents.X.sparse, self.given.documents.X.dense
        elif features is not None:
            sparse = as_features(load_matrix(features.folder / "X.npz", name="features")).sparse
        return side_by_side(sparse, dense, load_matrix(vectors.folder / "E.npy") if vectors else None)

    # What is written down.

    def facts(self) -> Facts:
        """What ``params.json`` says of any model."""
        recipe, documents = self.recipe, self.given.documents
        return {
            "model": "XTransformer",
            "train_params": portable(self.params).to_json(),
            "pred_params": recipe.pred_params.to_json(),
            "tfidf_params": recipe.tfidf.to_json() if recipe.tfidf else None,
            "ensemble_method": chosen_method(recipe),
            "only_topk": recipe.only_topk,
            "truncate_length": recipe.last_prediction.truncate_length,
            "nr_documents": documents.nr_documents,
            "nr_labels": documents.nr_labels,
            "seed": recipe.seed,
            "versions": versions("tensorflow", "transformers"),
        }

    def _labels_and(self, params: Any) -> dict[str, Any]:
        sums = self.checksums
        return {"labels": sums["labels"], "X": sums["features"], "Z": sums["label features"], "params": params}

    def _wishes(self) -> dict[str, Any]:
        return {name: getattr(self.recipe, name) for name in ("beam_size", "only_topk", "post_processor")}

    def _ranker_pred_params(self, tree: LabelTree) -> Any:
        return ranker_pred_params(
            self.params.ranker_params, self.recipe.pred_params.ranker_params, tree, **self._wishes()
        )  # fmt: skip


def side_by_side(sparse: Any, dense: Any, vectors: Any) -> Features:
    """Features, of which some may be missing, with the encoder's vectors as the last columns."""
    if dense is not None and vectors is not None:
        dense = np.hstack([dense, vectors])
    elif dense is None:
        dense = vectors
    return as_features((sparse, dense))


def portable(params: XTransformerParams) -> XTransformerParams:
    """The parameters without this machine's folders, which a model has no use for elsewhere."""

    def cleaned(level: MatcherParams) -> MatcherParams:
        name = level.init_model_dir or level.model_shortcut
        shortcut = Path(name).name if Path(name).expanduser().exists() else name
        return dataclasses.replace(level, model_shortcut=shortcut, init_model_dir="", cache_dir="", checkpoint_dir="")

    chain = params.matcher_params_chain
    changed = tuple(map(cleaned, chain)) if isinstance(chain, tuple) else cleaned(chain)
    return dataclasses.replace(params, matcher_params_chain=changed)
