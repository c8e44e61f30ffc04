"""A short version of the campaign: forty command lines with bad input."""

import pytest

from tests.campaigns import once_broken
from tests.campaigns.bad_input import chosen, warm
from tests.campaigns.trial import Case, run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    warm(folder)
    return folder


def test_bad_input_ends_with_a_message(inputs):
    cases = [case for case in chosen(44, len(list(once_broken.cases()))) if case.forked]
    outcomes = {str(case): run(case, inputs) for case in cases}
    failed = [
        f"{outcome.verdict}: {case}\n{outcome.said}" for case, outcome in outcomes.items() if outcome.verdict != "ok"
    ]
    assert not failed, "\n\n".join(failed)


def test_good_input_succeeds(inputs):
    """Else a fault of the campaign itself would pass for a refusal."""
    good = Case("linear.predict", ("-m", "{in}/model", "-x", "{in}/X.npz", "-o", "{out}/p.npz"))
    assert run(good, inputs).verdict == "ok"
