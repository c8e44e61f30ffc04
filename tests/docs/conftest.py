"""What the tests of the documentation share with those of serving: a small model and its export."""

from tests.serving.conftest import exported, model

__all__ = ["exported", "model"]
