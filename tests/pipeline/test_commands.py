"""The command lines: their flags, what they refuse, and the same command again."""

import json
import logging
import shutil

import numpy as np
import pytest

from tests.pipeline.corpus import made_stages, run_train, shell
from tests.refusals import refused
from xmc_tf import encode, predict, train
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix
from xmc_tf.jobs.train_flags import parser
from xmc_tf.metrics import pecos_lines
from xmc_tf.params import MatcherParams, XTransformerParams, XTransformerPredParams
from xmc_tf.pipeline.level_params import level_params
from xmc_tf.tree import LabelTree


def recipe_of(*flags):
    return train._recipe(parser().parse_args(flags))


def test_flags_reach_all_parts():
    flags = [
        "-t", "t", "-y", "y", "-m", "m", "--nr-splits", "4", "--threshold", "0.02", "-ns", "tfn+man", "--seed", "9",
        "--pooling", "mean", "--head-learning-rate", "0.01", "--Cp", "3", "--fix-clustering", "true", "-b", "7",
        "--truncate-length", "48", "--disable-gpu", "--steps-scale", "1", "2", "--min-df", "3", "-n", "2",
    ]  # fmt: skip
    recipe = recipe_of(*flags)
    params, level = recipe.params, recipe.params.ranker_params.hlm_args.model_chain
    matcher = params.matcher_params_chain
    assert {params.preliminary_indexer_params.nr_splits, params.refined_indexer_params.nr_splits} == {4}
    assert {params.preliminary_indexer_params.seed, recipe.seed} == {9}
    assert (matcher.threshold, level.threshold, level.Cp) == (0.02, 0.02, 3)
    assert (matcher.negative_sampling, params.ranker_params.hlm_args.neg_mining_chain) == ("tfn+man", "tfn+man")
    assert (matcher.pooling, matcher.head_learning_rate, matcher.use_gpu) == ("mean", 0.01, False)
    assert (recipe.prediction.beam_size, recipe.prediction.only_topk, recipe.steps_scale) == (7, None, (1, 2))
    assert (recipe.last_prediction.truncate_length, recipe.tfidf.min_df, recipe.threads) == (48, 3, 2)
    assert params.fix_clustering
    assert params.do_fine_tune


def test_fp16_of_pecos_is_mixed_precision():
    flags = ["-t", "t", "-y", "y", "-m", "m"]

    def precision(*more):
        return recipe_of(*flags, *more).params.matcher_params_chain.mixed_precision

    assert [precision("--fp16", value) for value in ("true", "false")] == ["fp16", "off"]
    assert precision("--mixed-precision", "fp16", "--fp16", "true") == "fp16"
    assert precision() == "auto"
    with pytest.raises(InputError, match="--fp16 and --mixed-precision are mutually exclusive"):
        precision("--mixed-precision", "bf16", "--fp16", "true")


CHAIN = {"max_steps": 5, "model_shortcut": "theirs", "negative_sampling": "tfn+man"}
LEVELS = {"neg_mining_chain": ["tfn", "man"], "model_chain": [{"Cp": 2}, {"Cp": 4}]}
FILE = {
    "train_params": {
        "preliminary_indexer_params": {"nr_splits": 8}, "refined_indexer_params": [{"seed": 1}, {"seed": 2}],
        "matcher_params_chain": [CHAIN, {**CHAIN, "max_steps": 6}], "ranker_params": {"hlm_args": LEVELS},
        "max_match_clusters": 77, "save_emb_dir": None,
    },
    "pred_params": {
        "matcher_params_chain": {"only_topk": 30, "truncate_length": 33},
        "ranker_params": {"hlm_args": {"model_chain": [{"only_topk": 10}, {"only_topk": 20}]}},
    },
    "tfidf_params": {"min_df": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "expected", "line"),
    [
        ("", {"max_steps": [5, 6], "Cp": [2, 4], "max_match_clusters": [77], "min_df": [4]}, ""),
        ("--max-steps 2", {"max_steps": [2, 2]}, "--max-steps 2 replaces 5 and 6"),
        ("--max-match-clusters 77", {"max_match_clusters": [77]}, ""),
        ("--num-train-epochs 2", {"num_train_epochs": [2, 2], "max_steps": [0, 0]}, "--max-steps 0 replaces 5 and 6"),
        ("--model-shortcut mine", {"model_shortcut": ["mine", "mine"]}, '--model-shortcut "mine" replaces "theirs"'),
        ("--nr-splits 4", {"nr_splits": [4] * 4}, "--nr-splits 4 replaces 8"),
        ("--Cp 3", {"Cp": [3, 3]}, "--Cp 3.0 replaces 2 and 4"),
        (
            "-ns tfn", {"neg_mining_chain": ["tfn"], "negative_sampling": ["tfn"] * 2},
            '--negative-sampling "tfn" replaces "tfn+man" and ["tfn", "man"]',
        ),
        (
            "-ns all", {"neg_mining_chain": [["tfn", "man"]], "negative_sampling": ["all"] * 2},
            '--negative-sampling "all" replaces "tfn+man"',
        ),
        ("--fp16 true", {"mixed_precision": ["fp16", "fp16"]}, ""),
        ("--seed 7", {"seed": [7, 7, 8]}, "--seed 7 replaces 1 and 2"),
        ("--trees 3", {"seed": [0, 1, 2, 3]}, ""),
        ("--min-df 9", {"min_df": [9]}, "--min-df 9 replaces 4"),
        ("--truncate-length 8", {"truncate_length": [8]}, "--truncate-length 8 replaces 33"),
        ("-b 6 -k 9", {}, "--beam-size 6 replaces 10\n--only-topk 9 replaces 30 and 20"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("split", [False, True])
def test_a_flag_that_is_given_replaces_the_value_of_the_file(tmp_path, caplog, flags, expected, line, split):
    def values(block, name):
        for key, value in block.items() if isinstance(block, dict) else ():
            yield from [value] if key == name else values(value, name)
        for entry in block if isinstance(block, list) else ():
            yield from values(entry, name)

    caplog.set_level(logging.INFO, "xmc_tf.params")
    path, more = tmp_path / "p.json", []
    path.write_text(json.dumps({key: block for key, block in FILE.items() if not split or key == "tfidf_params"}))
    for part in ("train", "pred") if split else ():
        (tmp_path / f"{part}.json").write_text(json.dumps(FILE[f"{part}_params"]))
        more += [f"--{part}-params-path", str(tmp_path / f"{part}.json")]
    command = ["-t", "t", "--params-path", str(path), *more, *flags.split()]
    recipe = recipe_of(*command)
    blocks = [one.to_json() for one in (recipe.params, recipe.pred_params, recipe.tfidf)]
    assert {name: list(values(blocks, name)) for name in expected} == expected
    said = [record.message for record in caplog.records if " replaces " in record.message]
    assert sorted(text.rpartition(" of ")[0] for text in said) == sorted(filter(None, line.split("\n")))
    if "-k" in flags:
        assert (recipe.prediction.beam_size, recipe.prediction.only_topk) == (6, 9)


def test_faults_of_parameter_files_and_of_flags_beside_them(tmp_path):
    path = tmp_path / "alone.json"
    command = ["-t", "t", "--pred-params-path", str(path)]
    path.write_text(json.dumps({"matcher_params_chain": {"truncate_length": 33}}))
    refused("--truncate-length is out of range", recipe_of, *command, "--truncate-length", "1")
    path.write_text(json.dumps({"matcher_params_chain": {"truncate_lenght": 33}}))
    assert "did you mean" in str(refused(str(path), recipe_of, *command))


@pytest.mark.parametrize(
    ("scale", "steps"), [(["0.5"], [50, 50, 50]), (["0.001"], [1, 1, 1]), (["0.5", "1", "2"], [50, 100, 200])]
)
def test_one_scale_of_steps_is_that_of_all_levels(scale, steps):
    tree = LabelTree(splits=([0, 2], [0, 2, 4], [0, 2, 4, 6, 8]), labels=list(range(8)))
    chain, _ = level_params(recipe_of("-t", "t", "--max-steps", "100", "--steps-scale", *scale), tree)
    assert [level.max_steps for level in chain] == steps


@pytest.mark.parametrize("which", ["", "train-", "pred-"])
def test_skeletons_are_read_again(capsys, tmp_path, which):
    train.main([f"--generate-{which}params-skeleton"])
    path = tmp_path / "p.json"
    path.write_text(capsys.readouterr().out)
    recipe = recipe_of(f"--{which}params-path", str(path), "-t", "t")
    if which != "pred-":
        assert recipe.params == XTransformerParams()
    if which != "train-":
        assert recipe.pred_params == XTransformerPredParams()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-y", "y"], "lacks -t, -m"),
        (["-t", "t", "-y", "y", "-m", "m", "-tt", "u"], "-tt alone"),
        (["-t", "t", "-y", "y", "-m", "m", "-x", "x", "--text-only"], "are mutually exclusive"),
        (["-t", "t", "-y", "y", "-m", "m", "-b", "0"], r"-b \(--beam-size\) is out of range"),
        (["-t", "t", "-y", "y", "-m", "m", "--learning-rate", "0"], "--learning-rate is out of range"),
    ],
)
def test_what_cannot_be_is_refused(flags, said):
    refused(said, train.main, flags)


def test_a_missing_file_is_named_before_the_encoder_is_looked_for(corpus, tmp_path, caplog):
    with pytest.raises(InputError, match=r"nope\.txt does not exist"):
        run_train(corpus, tmp_path / "m", "-t", tmp_path / "nope.txt", "--model-shortcut", tmp_path / "no-encoder")
    assert "fine-tuning the encoder" not in caplog.text
    # Without an encoder in the command, the first lines say which one the default of PECOS takes.
    files = ["-t", str(tmp_path / "nope.txt"), "-y", str(corpus / "Y.trn.npz"), "-m", str(tmp_path / "m")]
    refused(r"nope\.txt does not exist", train.main, files)
    assert f"fine-tuning the encoder {MatcherParams().model_shortcut} (" in caplog.text


def test_what_does_not_fit_is_refused_before_anything_is_made(corpus, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("one\ntwo\n")
    for flags, said in [
        (["-t", short], "different numbers of documents"),
        (["--truncate-length", 99], "at most 32"),
        (["--model-shortcut", tmp_path / "nothing"], "nothing"),
        (["--steps-scale", 1, 2, 3], "2 in total, or one for all"),
        (["--code-path", corpus / "Y.trn.npz"], "expected"),
    ]:
        refused(said, run_train, corpus, tmp_path / "m", *flags)
        assert not (tmp_path / "m").exists()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "labels.txt").write_text("dear")
    refused(r"holds files that are not part of a model(.|\n)*labels\.txt", run_train, corpus, tmp_path / "letters")
    assert (tmp_path / "letters" / "labels.txt").read_text() == "dear"


def test_the_same_again_makes_nothing_and_a_change_what_depends_on_it(corpus, frozen, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    shutil.copytree(corpus / "work", tmp_path / "work")
    flags = ["--no-fine-tune", "--work-dir", tmp_path / "work"]
    run_train(corpus, tmp_path / "m", *flags)
    for more, expected in [
        (["--batch-gen-workers", 1, "--num-train-epochs", 9, "-n", 2, "-b", 8], []),
        (["--Cp", 2], ["rankers"]),
        (["--min-df", 3], ["features", "tree", "rankers"]),
        ([], []),
    ]:
        caplog.clear()
        flags += more  # each training differs from the one before by one change
        run_train(corpus, tmp_path / "m", *flags)
        assert [name for name in made_stages(caplog.text) if name != "tokens"] == expected, more
    assert "the model is in" in caplog.text


@pytest.mark.full
def test_published_parameters_run(tuned):
    assert tuned.metadata.content["head_of_labels"]
    assert (tuned.ranker.depth, tuned.matcher.level) == (3, 3)
    assert [level.pred_params.post_processor for level in tuned.ranker.levels] == ["l3-hinge", "l3-hinge", "noop"]
    assert [level.pred_params.only_topk for level in tuned.ranker.levels] == [8, 8, 5]  # -b and -k of the command


def test_predictions_on_the_screen_and_in_files(corpus, frozen, tmp_path, capsys):
    model = str(frozen.folder)
    predict.main(["-m", model, "-q", "word1 forests forest", "-k", "2"])
    first = capsys.readouterr().out.splitlines()
    assert first[0].endswith("forest 1")
    assert len([line for line in first if line]) == 2
    texts, truth = str(corpus / "X.tst.txt"), str(corpus / "Y.tst.npz")
    predict.main(["-m", model, "-t", texts, "-o", str(tmp_path / "p.npz"), "-y", truth, "-k", "3", "-b", "4"])
    assert "precision" in capsys.readouterr().out
    predicted = load_matrix(tmp_path / "p.npz")
    assert predicted.shape == (60, 24)
    assert np.diff(predicted.indptr).max() == 3
    predict.main(
        ["-m", model, "-t", texts, "-o", str(tmp_path), "-y", truth, "-k", "3", "-b", "4", "--layout", "pecos"]
    )
    assert (tmp_path / "P.npz").read_bytes() == (tmp_path / "p.npz").read_bytes()
    assert capsys.readouterr().out == pecos_lines(predicted, load_matrix(corpus / "Y.tst.npz")) + "\n"
    predict.main(["-m", model, "-t", texts, "-o", str(tmp_path / "p.jsonl"), "-k", "1", "--batch-size", "4"])
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert len(lines) == 60
    assert json.loads(lines[0])["labels"][0] in frozen.names
    for flags, said in [
        (["-o", "p.txt"], "not written in this format"),
        (["--batch-size", "0"], "at least 1"),
        (["-y", str(corpus / "Y.trn.npz")], "different numbers of documents"),
        (["--ensemble-method", "average"], "not fine-tuned"),
    ]:
        refused(said, predict.main, ["-m", model, "-t", texts, *flags])


def test_vectors_in_a_file(corpus, frozen, tmp_path):
    flags = ["-m", str(frozen.folder), "-t", str(corpus / "X.tst.txt")]
    encode.main([*flags, "-o", str(tmp_path / "E.npy")])
    E = np.load(tmp_path / "E.npy")
    assert (E.shape, E.dtype) == ((60, 16), np.float32)
    np.testing.assert_allclose(np.linalg.norm(E, axis=1), 1, rtol=1e-5)
    encode.main([*flags, "-o", str(tmp_path / "F.npy"), "--truncate-length", "4"])
    assert np.abs(np.load(tmp_path / "F.npy") - E).max() > 1e-3
    (tmp_path / "folder").mkdir()
    # As PECOS names them: exactly as given, embeddings.npy in a folder, one file per rank with the other flag.
    for flag, name, written in [
        ("-o", "E.emb", "E.emb"),
        ("-o", "folder", "folder/embeddings.npy"),
        ("--save-emb-folder", "ranks", "ranks/X.emb.0.npy"),
    ]:
        encode.main([*flags, flag, str(tmp_path / name)])
        np.testing.assert_array_equal(np.load(tmp_path / written), E)
    refused(r"ends in \.npy(.|\n)*received: \.csv", encode.main, [*flags, "-o", str(tmp_path / "E.csv")])


@pytest.mark.full
def test_the_shell(frozen):
    code, out, err = shell("predict", "-m", frozen.folder, "-q", "harbour harbours", "-k", 1)
    assert (code, "harbour 1" in out) == (0, True), err
    assert "tensorflow" not in err.lower()  # its chatter
