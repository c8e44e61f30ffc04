"""Flags made from the classes, and classes made from the flags."""

import argparse

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    RankerParams,
    add_flags,
    from_arguments,
)


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, "nr_splits", "min_codes", "spherical", "threads", of=HierarchicalKMeansParams)
    add_flags(parser, "solver_type", "Cp", of=LinearLevelParams, threshold={"default": 0.2})
    return parser


def test_flags_take_their_defaults_from_the_class(parser):
    arguments = parser.parse_args([])
    assert arguments.nr_splits == 16
    assert arguments.threshold == 0.2
    assert from_arguments(HierarchicalKMeansParams, arguments) == HierarchicalKMeansParams()


def test_flags_reach_every_block_that_knows_them(parser):
    arguments = parser.parse_args(["--nr-splits", "8", "-n", "2", "--Cp", "4", "--spherical", "false"])
    ranker = from_arguments(RankerParams, arguments)
    assert ranker.nr_splits == 8
    assert ranker.hlm_args.model_chain == LinearLevelParams(Cp=4.0, threads=2, threshold=0.2)
    assert from_arguments(HierarchicalKMeansParams, arguments).spherical is False


def test_flags_that_cannot_be(parser):
    with pytest.raises(InputError, match=r"--nr-splits is out of range(.|\n)*at least 2(.|\n)*received: 1"):
        from_arguments(RankerParams, parser.parse_args(["--nr-splits", "1"]))
    with pytest.raises(argparse.ArgumentError, match="expected true or false, received 'maybe'"):
        parser.parse_args(["--spherical", "maybe"])
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parser.parse_args(["--solver-type", "L2"])


def test_all_single_values_without_names():
    parser = argparse.ArgumentParser()
    add_flags(parser, of=MatcherParams)
    assert "--lr-schedule" in parser.format_help()
    assert from_arguments(MatcherParams, parser.parse_args([])) == MatcherParams()
