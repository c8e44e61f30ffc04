"""The page "What is equal to Keras" is right: its rows are run on two ranks with MPI, on three with Gloo, and on one.

``XMC_TF_ALL_ROWS=1 pytest tests/distributed/test_equal_to_keras.py`` runs each row on several ranks, in 15 minutes;
otherwise it is a row of each kind of outcome, and a fifth of the others.
"""

import os
import re
from functools import partial

import pytest

from tests.campaigns.keras_programs import LAUNCHES, launched
from tests.campaigns.random_programs import random_program
from tests.distributed.launch import REPOSITORY, horovodrun, mpiexec, python

pytestmark = pytest.mark.distributed

PAGE = (REPOSITORY / "docs" / "reference" / "equal-to-keras.md").read_text()
OUTCOMES = "equal|announced|refused|different"
CLAIMS = {
    feature: claims
    for feature, *claims in re.findall(rf"^\| (.+?) \| ({OUTCOMES}) \| ({OUTCOMES}) \|", PAGE, re.MULTILINE)
}
OF_EACH_KIND = list({tuple(claims): feature for feature, claims in reversed(CLAIMS.items())}.values())
STEP = 1 if os.environ.get("XMC_TF_ALL_ROWS") else 5
ALONE = [feature for feature in CLAIMS if feature not in ("jit_compile=True", "stateful=True")][:: 3 * STEP]
SAMPLE = [112, 113, 116, 127, 137]  # seeds of python -m tests.campaigns.keras_programs


def test_a_row_of_each_kind_of_outcome_is_right_on_two_ranks():
    check(mpiexec("equal_to_keras.py", *OF_EACH_KIND, imported=True, timeout=300), set(OF_EACH_KIND))


def test_random_programs_are_equal_on_two_ranks(tmp_path):
    found = launched(LAUNCHES["2"], tmp_path, SAMPLE)
    assert list(found) == SAMPLE
    for seed, outcome in found.items():
        assert outcome.startswith(("equal", "announced", "refused")), f"{random_program(seed)}\n{outcome}"


@pytest.mark.full
def test_rows_of_the_page_are_right_in_one_process():
    check(python("equal_to_keras.py", *ALONE, imported=True, timeout=600), set(ALONE))


@pytest.mark.full
@pytest.mark.parametrize(
    ("launch", "first"),
    [
        pytest.param(partial(mpiexec, world=2, imported=True), 0, id="mpi"),
        pytest.param(partial(horovodrun, world=3), 1, id="gloo"),
    ],
)
def test_rows_of_the_page_are_right_on_several_ranks(launch, first):
    rows = [row for row in CLAIMS if row not in OF_EACH_KIND][first :: 2 * STEP]
    check(launch("equal_to_keras.py", *rows, timeout=600), set(rows))


def check(run, rows):
    for rank in run.ranks:
        world, outcomes = rank.result["world"], rank.result["outcomes"]
        assert set(outcomes) == rows
        for feature, both in outcomes.items():
            for mode, claim, found in zip(("default", "exact=True"), CLAIMS[feature], both, strict=True):
                # What differs between ranks may be equal in one process; so is what exact=True announces too.
                of_ranks = claim != "announced" or CLAIMS[feature] == ["announced", "announced"]
                fine = found.startswith(claim) or (world == 1 and of_ranks and found.startswith("equal"))
                assert fine, f"{feature}, {mode}, {world} ranks: {claim!r} on the page, {found!r}"
                assert claim != "refused" or not found.startswith("refused") or "fix:" in found, found
