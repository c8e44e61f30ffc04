"""The check of lines by package: what it counts, and what it rejects."""

import pytest

from tools.check_lines import count_lines, problems

FILES = {
    "xmc_tf/train.py": "a\nb\n",
    "xmc_tf/data/npz.py": "a\n",
    "xmc_tf/data/text/x.py": "a\n\nb\n",
    "tests/a/b.py": "a",
}


def test_lines_are_counted_by_package():
    assert count_lines(FILES) == {"xmc_tf": 2, "xmc_tf/data": 4, "tests": 1}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, None),
        ({"tests": 0}, "tests: 1 lines, expected at most 0"),
        ({"xmc_tf/data": None}, "xmc_tf/data: no ceiling"),
        ({"xmc_tf/gone": 5}, "xmc_tf/gone: no such package"),
    ],
)
def test_a_package_needs_a_ceiling_and_stays_below_it(changed, problem):
    ceilings = {"xmc_tf": 2, "xmc_tf/data": 4, "tests": 1} | changed
    found = problems(count_lines(FILES), {name: ceiling for name, ceiling in ceilings.items() if ceiling is not None})
    assert [text[: len(problem or "")] for text in found] == ([] if problem is None else [problem])
