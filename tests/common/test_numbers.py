"""Tests of numbers on command lines, within the range of arrays."""

import argparse

import pytest

from tests.refusals import refused
from xmc_tf.common.numbers import share, whole
from xmc_tf.common.threads import thread_count
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelParams, LinearLevelPredParams


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("-1", -1), (str(2**63 - 1), 2**63 - 1), ("1_000", 1000)])
def test_numbers(text, number):
    assert whole(text) == number


@pytest.mark.parametrize("text", ["", "3.0", "x" * 100, "9" * 20, "9" * 30, "9" * 5000, "-" + "9" * 20])
def test_invalid_numbers_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        whole(text)
    assert len(str(caught.value)) < 120


def test_shares_are_fractions_or_percentages():
    assert [share(text) for text in ("0.2", "20%", "0", "100 %")] == [0.2, 0.2, 0, 1]
    with pytest.raises(argparse.ArgumentTypeError, match=r"received '20'; did you mean 0\.2 \(20%\)\?"):
        share("20")
    with pytest.raises(argparse.ArgumentTypeError, match=r"received '200%'$"):
        share("200%")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HierarchicalKMeansParams(seed=2**32), "seed is out of range\n(.|\n)*at most 4294967295"),
        (lambda: HierarchicalKMeansParams(nr_splits=2**31), "nr_splits is out of range\n(.|\n)*at most 2147483647"),
        (lambda: LinearLevelParams(threads=1025), "threads is out of range\n(.|\n)*at most 1024"),
        (lambda: LinearLevelPredParams(only_topk=10**30), "only_topk is out of range\n(.|\n)*at most 2147483647"),
        (lambda: thread_count(10**9), "too many threads"),
    ],
)
def test_parameters_have_upper_bounds(make, words):
    refused(words, make)
