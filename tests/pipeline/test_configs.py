"""The parameter files of configs/: each fits its data set's trees, and its script says what is in it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from xmc_tf import train
from xmc_tf.jobs.train_flags import parser
from xmc_tf.params import XTransformerParams, XTransformerPredParams, load_blocks, per_level
from xmc_tf.tree.label_tree import binary_depth, upper_splits

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
LABELS = {
    "eurlex-4k": 3956, "wiki10-31k": 30938, "amazoncat-13k": 13330, "wiki-500k": 501070, "amazon-670k": 670091,
    "amazon-3m": 2812281,
}  # fmt: skip


def levels_of(params, labels):
    """The sizes of a tree's levels."""
    leaves = 2 ** binary_depth(labels, params.max_leaf_size)
    above = upper_splits(leaves, params.nr_splits, params.min_codes)
    return [int(splits[-1]) for splits in above] + [labels]


def test_there_is_a_script_for_each():
    assert {path.stem for path in CONFIGS.glob("*.json")} == {*LABELS, "demo"}
    assert {path.stem for path in CONFIGS.glob("*.sh")} == {*LABELS, "demo"}


@pytest.mark.parametrize("name", LABELS)
def test_settings_fit_the_trees(name):
    classes = {"train_params": XTransformerParams, "pred_params": XTransformerPredParams}
    params, pred_params = load_blocks(CONFIGS / f"{name}.json", ignore=("tfidf_params",), **classes).values()
    first = [size for size in levels_of(params.preliminary_indexer_params, LABELS[name]) if size <= 32768]
    refined = levels_of(params.refined_indexer_params, LABELS[name])
    per_level(params.matcher_params_chain, len(first))
    per_level(pred_params.matcher_params_chain, len(first))
    for chain in (params.ranker_params.hlm_args.model_chain, params.ranker_params.hlm_args.neg_mining_chain,
                  pred_params.ranker_params.hlm_args.model_chain):  # fmt: skip
        per_level(chain, len(refined))
    script = (CONFIGS / f"{name}.sh").read_text()
    assert f"Tree for the encoder   {' > '.join(f'{size:,}' for size in first)}:" in script
    assert f"Tree for the rankers   {' > '.join(f'{size:,}' for size in refined)}\n" in script
    steps = [level.max_steps for level in params.matcher_params_chain]
    assert f"{' + '.join(f'{step:,}' for step in steps)} = {sum(steps):,} ×" in script


@pytest.mark.parametrize("name", [*LABELS, "demo"])
def test_scripts_call_what_there_is(name, tmp_path):
    """With commands in place of horovodrun and python that write down how they were called."""
    calls = tmp_path / "calls"
    for command in ("horovodrun", "python"):
        (tmp_path / command).write_text(f'#!/bin/sh\nprintf "%s\\n" {command} "$@" >> {calls}\necho >> {calls}\n')
        (tmp_path / command).chmod(0o755)
    script = CONFIGS / f"{name}.sh"
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", script, "data", "model", "--seed", "3"], check=True, env=path, timeout=60)
    trained, predicted = (call.splitlines() for call in calls.read_text().strip().split("\n\n"))
    flags = trained[trained.index("xmc_tf.train") + 1 :]
    recipe = train._recipe(parser().parse_args(flags))
    held = json.loads((CONFIGS / f"{name}.json").read_text())["pred_params"]["matcher_params_chain"]
    last = held[-1] if isinstance(held, list) else held
    assert (recipe.seed, recipe.last_prediction.truncate_length) == (3, last["truncate_length"])
    assert predicted[:3] == ["python", "-m", "xmc_tf.predict"]
    assert re.match(rf"#!/bin/sh\n# sh configs/{name}\.sh DATA MODEL", script.read_text())
