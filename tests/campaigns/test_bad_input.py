"""A part of the campaign: command lines that were broken once, and forty others.

``XMC_TF_BAD_INPUT=500:1000`` runs those from number 500 to 1,000 of all, so that the campaign can be run in pieces.
"""

import mmap
import os

import pytest

from tests.campaigns import once_broken
from tests.campaigns.inputs import chosen, warm
from tests.campaigns.trial import Case, Outcome, run

GOOD = Case("linear.predict", ("-m", "{in}/model", "-x", "{in}/X.npz", "-o", "{out}/p.npz"))
BROKEN_ONCE = len(list(once_broken.cases()))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    warm(folder)
    return folder


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let a database be without a row for seconds; users wait for a minute."""
    monkeypatch.setattr("xmc_tf.tables.reading.structured.MOST_SECONDS", 3.0)


PARTS = {"one in three broken once": slice(0, BROKEN_ONCE, 3), "others": slice(BROKEN_ONCE, BROKEN_ONCE + 44)}
# In make test-all.
FULL = {f"{which} in three broken once": slice(first, BROKEN_ONCE, 3) for first, which in ((1, "two"), (2, "three"))}
if PART := os.environ.get("XMC_TF_BAD_INPUT"):
    PARTS, FULL = {PART: slice(*map(int, PART.split(":")))}, {}


@pytest.mark.parametrize("part", [*PARTS, *(pytest.param(part, marks=pytest.mark.full) for part in FULL)])
def test_bad_input_ends_with_a_message(part, inputs):
    cases = chosen()[(PARTS | FULL)[part]]
    outcomes = {str(case): run(case, inputs) for case in cases if PART or case.forked}
    failed = [
        f"{outcome.verdict}: {case}\n{outcome.said}" for case, outcome in outcomes.items() if outcome.verdict != "ok"
    ]
    assert not failed, "\n\n".join(failed)
    assert sum(outcome.refused for outcome in outcomes.values()) > len(outcomes) / 3


def test_good_input_succeeds(inputs):
    """Else a fault of the campaign itself would pass for a refusal."""
    assert run(GOOD, inputs) == Outcome("ok")


def test_a_case_has_memory_though_this_process_is_large(inputs):
    """Else the first thread of the command gets no memory, and Python waits for it."""
    with mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ):
        assert run(GOOD, inputs, limit_s=60) == Outcome("ok")
