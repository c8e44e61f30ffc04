"""What the tests of the documentation share: a small model and its export, and whether outputs are renewed."""

import pytest

from tests.serving.conftest import exported, model

__all__ = ["exported", "model"]


def pytest_addoption(parser):
    parser.addoption("--renew", action="store_true", help="write what the examples print into the pages")


@pytest.fixture(scope="session")
def renew(pytestconfig):
    """Whether outputs that pages show are rewritten (``python -m tools.docs.renew``), instead of compared."""
    return pytestconfig.getoption("--renew", default=False)
