"""The choice of settings from the size of the data, the time and the effort."""

import dataclasses

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.jobs.settings import DataShape, choose_settings, estimated_seconds
from xmc_tf.params import XRLinearParams

SMALL = DataShape(9_000, 1_000, 2_000, 25.0)
LARGE = DataShape(1_000_000, 100_000, 200_000, 100.0)
DEFAULTS = XRLinearParams()


def _names(settings):
    return [step.name for step in settings.steps]


def test_few_labels_need_no_tree_and_many_do():
    assert choose_settings(SMALL, DEFAULTS).params.tree.max_leaf_size == 2_000
    large = choose_settings(LARGE, DEFAULTS)
    assert large.params == DEFAULTS
    assert any("too many" in reason for reason in large.reasons)
    assert "negatives from the beam (tfn+man)" in _names(large)
    assert "negatives from the beam (tfn+man)" not in _names(choose_settings(SMALL, DEFAULTS))


def test_what_the_user_sets_stays():
    settings = choose_settings(SMALL, DEFAULTS, fixed=frozenset({"max_leaf_size", "Cp", "ngram_max"}))
    assert settings.params == DEFAULTS
    assert _names(settings) == ["negatives from the beam (tfn+man)"]


def test_more_effort_tries_more():
    fast, balanced, best = (choose_settings(LARGE, DEFAULTS, effort=one) for one in ("fast", "balanced", "best"))
    assert not fast.steps
    assert set(_names(balanced)) < set(_names(best))
    assert balanced.sample < best.sample < LARGE.documents


def test_without_validation_documents_nothing_is_tried():
    settings = choose_settings(dataclasses.replace(SMALL, held_out=0), DEFAULTS)
    assert not settings.steps
    assert "no validation documents" in settings.reasons[-1]


def test_less_time_tries_less_on_fewer_documents():
    plenty = choose_settings(LARGE, DEFAULTS, minutes=1e6)
    assert _names(plenty) == _names(choose_settings(LARGE, DEFAULTS))
    training = 2 * estimated_seconds(LARGE) / 60
    some = choose_settings(LARGE, DEFAULTS, minutes=training + 2 * estimated_seconds(LARGE, 50_000) / 60)
    assert 0 < len(some.steps) < len(plenty.steps) or some.sample < plenty.sample
    none = choose_settings(LARGE, DEFAULTS, minutes=0.1)
    assert not none.steps
    assert "leaves no time" in none.reasons[-1]


def test_each_step_changes_just_what_it_says():
    for step in choose_settings(LARGE, DEFAULTS, effort="best").steps:
        changed = step.change(DEFAULTS).to_json()
        assert changed != DEFAULTS.to_json(), step.name
        assert XRLinearParams() == DEFAULTS


@pytest.mark.parametrize(("minutes", "effort"), [(0, "balanced"), (float("nan"), "balanced"), (1, "heroic")])
def test_impossible_wishes_are_refused(minutes, effort):
    with pytest.raises(InputError):
        choose_settings(SMALL, DEFAULTS, minutes=minutes, effort=effort)
