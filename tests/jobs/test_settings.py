"""The choice of settings from the size of the data, the time and the effort."""

import dataclasses
import re

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.jobs.settings import DataShape, announcement, choose_settings, estimated_seconds
from xmc_tf.params import (
    EFFORTS,
    HierarchicalKMeansParams,
    XRLinearParams,
    params_of_effort,
    several_trees,
)

SMALL = DataShape(9_000, 1_000, 2_000, 25.0)
LARGE = DataShape(1_000_000, 100_000, 200_000, 100.0)
DEFAULTS = XRLinearParams()


def _names(settings):
    return [step.setting for step in settings.steps]


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_an_effort_means_the_same_trees_as_in_other_trainings(shape, effort):
    settings = choose_settings(shape, DEFAULTS, effort=effort)
    assert settings.params == params_of_effort(DEFAULTS, effort, shape.documents, shape.labels)
    count = len(settings.params.trees)
    assert settings.reasons[0].endswith(f"(--effort {effort})")
    assert any("compared with 2 of the" in reason for reason in settings.reasons) == (count > 2)


def test_few_labels_need_no_tree_and_many_do():
    few = choose_settings(dataclasses.replace(SMALL, labels=50), DEFAULTS)
    assert [tree.max_leaf_size >= 50 for tree in few.params.trees] == [True]
    assert "no label tree" in few.reasons[0]
    assert "counterexamples (--negative-sampling)" not in _names(few)
    large = choose_settings(LARGE, DEFAULTS)
    assert "4 label trees with up to 100 or 400 labels" in large.reasons[0]
    assert "counterexamples (--negative-sampling)" in _names(large)
    assert "one model without a tree" in choose_settings(SMALL, DEFAULTS).reasons[0]


def test_what_the_user_sets_stays():
    settings = choose_settings(SMALL, DEFAULTS, fixed=frozenset({"max_leaf_size", "Cp", "ngram_max", "piece_weight"}))
    assert settings.params == DEFAULTS
    assert _names(settings) == ["counterexamples (--negative-sampling)"]
    assert "as set by --max-leaf-size" in settings.reasons[0]
    own = XRLinearParams(tree=several_trees(HierarchicalKMeansParams(), 3))
    assert choose_settings(SMALL, own, fixed=frozenset({"trees"}), effort="fast").params == own
    kept = choose_settings(SMALL, DEFAULTS, fixed=frozenset({"Cp"})).params
    assert (kept.ranker, len(kept.trees)) == (DEFAULTS.ranker, 4)


def test_a_changed_weight_of_pieces_is_a_multiple_of_the_one_that_was_kept():
    first = dataclasses.replace(DEFAULTS, tfidf=dataclasses.replace(DEFAULTS.tfidf, piece_weight=0.4))
    half, more = (step for step in choose_settings(SMALL, DEFAULTS).steps if "pieces of" in step.setting)
    assert (half.value(first), more.value(more.change(first))) == ("0.4", "0.6")
    assert more.change(first).tfidf.piece_weight == pytest.approx(0.6)
    assert more.change(half.change(first)).tfidf.piece_weight == pytest.approx(0.3)


def test_more_effort_tries_more():
    fast, balanced, best = (choose_settings(LARGE, DEFAULTS, effort=one) for one in ("fast", "balanced", "best"))
    assert not fast.steps
    assert set(_names(balanced)) <= set(_names(best))
    assert len(balanced.steps) < len(best.steps)
    assert balanced.sample < best.sample < LARGE.documents


def test_without_validation_documents_nothing_is_tried():
    settings = choose_settings(dataclasses.replace(SMALL, held_out=0), DEFAULTS)
    assert not settings.steps
    assert "no validation documents" in settings.reasons[-1]


def test_less_time_tries_less_on_fewer_documents():
    plenty = choose_settings(LARGE, DEFAULTS, minutes=1e6)
    assert _names(plenty) == _names(choose_settings(LARGE, DEFAULTS))
    training = (12 * estimated_seconds(LARGE) + 2e-3 * LARGE.labels) / 60
    some = choose_settings(LARGE, DEFAULTS, minutes=training + 8 * estimated_seconds(LARGE, 50_000) / 60)
    assert len(some.params.trees) == 4
    assert 0 < len(some.steps) < len(plenty.steps) or some.sample < plenty.sample
    few = choose_settings(LARGE, DEFAULTS, minutes=training + 100 / 60)
    assert few.sample == plenty.sample // 4
    assert sum("compared on" in reason for reason in few.reasons) == 1
    none = choose_settings(LARGE, DEFAULTS, minutes=training * 1.001)
    assert not none.steps
    assert "leaves no time" in none.reasons[-1]
    least = choose_settings(LARGE, DEFAULTS, minutes=0.1, effort="best")
    assert "--effort fast instead of best, for --minutes 0.1" in least.reasons
    # Labels take time of their own, besides the documents.
    many = dataclasses.replace(SMALL, labels=200_000)
    spans = [announcement(one, choose_settings(one, DEFAULTS, effort="fast")) for one in (SMALL, many)]
    assert [re.search("about (.*) or less", span)[1] for span in spans] == ["a minute", "7 minutes"]
    assert announcement(LARGE, least).endswith("(--effort fast)")  # the first line names the effort of the last
    assert (len(least.params.trees), least.steps) == (1, ())


@pytest.mark.parametrize(("minutes", "effort"), [(0, "balanced"), (float("nan"), "balanced"), (1, "heroic")])
def test_impossible_settings_are_refused(minutes, effort):
    with pytest.raises(InputError):
        choose_settings(SMALL, DEFAULTS, minutes=minutes, effort=effort)
