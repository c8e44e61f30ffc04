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


def test_flags_reach_all_parts():
    flags = [
        "-t", "t", "-y", "y", "-m", "m", "--nr-splits", "4", "--threshold", "0.02", "-ns", "tfn+man", "--seed", "9",
        "--pooling", "mean", "--head-learning-rate", "0.01", "--Cp", "3", "--fix-clustering", "true", "-b", "7",
        "--truncate-length", "48", "--disable-gpu", "--steps-scale", "1", "2", "--min-df", "3", "-n", "2",
    ]  # fmt: skip
    recipe = train._recipe(parser().parse_args(flags))
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
        return train._recipe(parser().parse_args([*flags, *more])).params.matcher_params_chain.mixed_precision

    assert [precision("--fp16", value) for value in ("true", "false")] == ["fp16", "off"]
    assert precision("--mixed-precision", "fp16", "--fp16", "true") == "fp16"
    assert precision() == "auto"
    with pytest.raises(InputError, match="--fp16 and --mixed-precision are mutually exclusive"):
        precision("--mixed-precision", "bf16", "--fp16", "true")


def test_parameter_files_replace_flags(tmp_path):
    whole, alone = tmp_path / "whole.json", tmp_path / "alone.json"
    whole.write_text(json.dumps({"train_params": {"max_match_clusters": 77}, "tfidf_params": {"min_df": 4}}))
    alone.write_text(json.dumps({"matcher_params_chain": {"truncate_length": 33}}))
    flags = ["-t", "t", "-y", "y", "-m", "m", "--max-match-clusters", "5", "--min-df", "9", "--truncate-length", "8"]
    recipe = train._recipe(parser().parse_args([*flags, "--params-path", str(whole)]))
    assert (recipe.params.max_match_clusters, recipe.tfidf.min_df) == (77, 4)
    assert recipe.last_prediction.truncate_length == 8
    recipe = train._recipe(parser().parse_args([*flags, "--pred-params-path", str(alone)]))
    assert (recipe.last_prediction.truncate_length, recipe.params.max_match_clusters) == (33, 5)
    alone.write_text(json.dumps({"matcher_params_chain": {"truncate_lenght": 33}}))
    with pytest.raises(InputError, match="did you mean") as error:
        train._recipe(parser().parse_args([*flags, "--pred-params-path", str(alone)]))
    assert str(alone) in str(error.value)


@pytest.mark.parametrize("which", ["", "train-", "pred-"])
def test_skeletons_are_read_again(capsys, tmp_path, which):
    train.main([f"--generate-{which}params-skeleton"])
    path = tmp_path / "p.json"
    path.write_text(capsys.readouterr().out)
    recipe = train._recipe(parser().parse_args([f"--{which}params-path", str(path), "-t", "t"]))
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
        (["--steps-scale", 1, 2, 3], "2 in total"),
        (["--code-path", corpus / "Y.trn.npz"], "expected"),
    ]:
        refused(said, run_train, corpus, tmp_path / "m", *flags)
        assert not (tmp_path / "m").exists()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "labels.txt").write_text("dear")
    refused(r"holds other files(.|\n)*labels\.txt", run_train, corpus, tmp_path / "letters")
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


def test_the_shell(frozen):
    code, out, err = shell("predict", "-m", frozen.folder, "-q", "harbour harbours", "-k", 1)
    assert (code, "harbour 1" in out) == (0, True), err
    assert "tensorflow" not in err.lower()  # its chatter
