"""The options --trees and --effort. An effort chooses label trees that suit the data and the time to spend."""

import argparse
import dataclasses

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import MOST_TREES, whole
from xmc_tf.params.linear import HierarchicalKMeansParams, LinearLevelParams
from xmc_tf.params.models import XRLinearParams, XTransformerParams

EFFORTS = {
    "fast": "one tree: about twice the time of the defaults, better labels",
    "balanced": "four trees: about eight times the time and four times the memory of the defaults",
    "best": "six trees, and one model without a tree if the data allow it: up to fifty times the time, and seven "
    "times the memory, of the defaults",
}
"""The levels of effort, with what each costs."""
EFFORT_TIMES = {"fast": 2, "balanced": 8, "best": 50}
"""Training time of the rankers at each effort, as a multiple of the time with the defaults."""

# Labels per leaf, tree by tree: two sizes make trees more different than two seeds do, so averaging helps more.
_LEAF_SIZES = (100, 400)
_TREES = {"fast": 1, "balanced": 4, "best": 6}
# Every node below the root of a flat tree is a model on all documents: beyond this number, levels are cheaper.
_MOST_CLUSTERS = 512
# Without a tree, every label is a model on all documents: the maximum of documents times labels for which it pays off.
_MOST_WITHOUT_TREE = {"fast": 0, "balanced": 5e7, "best": 4e9}
_DENSE_COST = 20  # how much more a document with an embedding costs a model on all documents
# Half of the solver's default weight of the loss: averaging works better with models that fit less closely.
_COST = 0.5


def add_trees(flags: argparse._ActionsContainer, *, tables: bool = False) -> None:
    """Add --trees and --effort. ``tables``: the command also trains on tables, where --effort has a default."""
    flags.add_argument(
        "--trees", type=whole, default=1, metavar="INT",
        help="number of label trees of the rankers, whose scores are averaged (their seeds are successive); more trees "
        "find better labels, but multiply the rankers' time and memory",
    )  # fmt: skip
    costs = "; ".join(f"{name}: {cost}" for name, cost in EFFORTS.items())
    what, default = "number and shapes of the label trees, Cp and Cn", "one tree, set by the other flags"
    if tables:
        what = "number and shapes of the rankers' label trees (without an encoder, also Cp and Cn)"
        default = f"balanced on a table without an encoder, else {default}"
    compared = (
        " On a table without an encoder, fast compares no settings on validation documents, and best compares the most."
    )
    flags.add_argument(
        "--effort", choices=tuple(EFFORTS),
        help=f"choose {what} to suit the data (cost of the rankers: {costs}).{compared if tables else ''} "
        f"(default: {default})",
    )  # fmt: skip


def params_of_effort(
    params: XRLinearParams, effort: str | None, nr_documents: int, nr_labels: int, *, dense: bool = False
) -> XRLinearParams:
    """Return the parameters with trees that suit the data and, if Cp and Cn have their defaults, with values that suit
    these trees. The trees are flat: up to several hundred clusters are children of the root, which finds better labels
    than several narrow levels.
    """
    if effort is None:
        return params
    if effort not in EFFORTS:
        raise InputError(f"unknown effort {effort!r}", expected=", ".join(EFFORTS), received=repr(effort))
    first, usual = params.trees[0], HierarchicalKMeansParams()
    shaped = [
        name for name in ("nr_splits", "min_codes", "max_leaf_size") if getattr(first, name) != getattr(usual, name)
    ]
    if shaped or len(params.trees) > 1:
        what = " and ".join(name.replace("_", "-") for name in shaped) or f"{len(params.trees)} trees"
        raise InputError(
            f"the effort {effort!r} and {what} cannot be combined",
            expected="either an effort, which chooses the number and shapes of the trees, or your own values",
            fix="leave one of them out",
        )
    trees = [_tree(first, number, nr_labels) for number in range(_TREES[effort])]
    trees = [tree for tree in trees if tree.max_leaf_size < nr_labels]
    cost = nr_documents * nr_labels * (_DENSE_COST if dense else 1)
    if not trees or cost <= _MOST_WITHOUT_TREE[effort]:
        no_tree = dataclasses.replace(first, max_leaf_size=max(nr_labels, first.max_leaf_size))
        trees = [*trees[: _TREES["best"] if effort == "best" else _TREES[effort] - 1], no_tree]
    ranker, chain, level = params.ranker, params.ranker.hlm_args.model_chain, LinearLevelParams()
    if not isinstance(chain, tuple) and (chain.Cp, chain.Cn) == (level.Cp, level.Cn):
        changed = dataclasses.replace(chain, Cp=_COST, Cn=_COST)
        ranker = dataclasses.replace(ranker, hlm_args=dataclasses.replace(ranker.hlm_args, model_chain=changed))
    return dataclasses.replace(params, tree=tuple(trees) if len(trees) > 1 else trees[0], ranker=ranker)


def encoder_params_of_effort(
    params: XTransformerParams, effort: str | None, nr_documents: int, nr_labels: int, *, words: bool = False
) -> XTransformerParams:
    """Return the parameters with new trees for the rankers; the solver settings and the fine-tuning tree stay.

    With ``words``, the rankers of half of the trees read the words alone. Both halves have trees of both shapes.
    """
    if effort is not None and params.only_encoder:
        raise InputError(
            f"the effort {effort!r} chooses the rankers' trees, but there are no rankers", received="--only-encoder",
            fix="leave one of them out",
        )  # fmt: skip
    linear = XRLinearParams(tree=params.refined_indexer_params)
    chosen = params_of_effort(linear, effort, nr_documents, nr_labels, dense=True)
    if effort is None or not words or len(chosen.trees) == 1:
        return dataclasses.replace(params, refined_indexer_params=chosen.tree)
    every = range(len(chosen.trees))
    alone = [number for number in every if number % 4 in (1, 2)][: len(every) // 2]
    order = [*(number for number in every if number not in alone), *alone]
    trees = tuple(chosen.trees[number] for number in order)
    return dataclasses.replace(params, refined_indexer_params=trees, word_trees=len(alone))


def several_trees(
    tree: HierarchicalKMeansParams | tuple[HierarchicalKMeansParams, ...], count: int
) -> HierarchicalKMeansParams | tuple[HierarchicalKMeansParams, ...]:
    """Return the parameters of ``count`` trees of the shape of the (first) tree, with successive seeds."""
    if not 1 <= count <= MOST_TREES:
        wanted = f"a whole number from 1 to {MOST_TREES}"
        raise InputError("--trees is out of range", expected=wanted, received=str(count))
    first = tree[0] if isinstance(tree, tuple) else tree
    trees = tuple(dataclasses.replace(first, seed=first.seed + number) for number in range(count))
    return trees if count > 1 else first


def _tree(first: HierarchicalKMeansParams, number: int, nr_labels: int) -> HierarchicalKMeansParams:
    leaf, clusters = _LEAF_SIZES[number % len(_LEAF_SIZES)], 1
    while clusters * leaf < nr_labels:
        clusters *= 2
    splits = max(2, clusters) if clusters <= _MOST_CLUSTERS else first.nr_splits
    return dataclasses.replace(first, nr_splits=splits, max_leaf_size=leaf, seed=first.seed + number)
