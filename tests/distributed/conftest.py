"""Fixtures that several distributed tests share."""

import json
import re
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.distributed import launch
from tests.distributed.cluster import SLOTS, Cluster, why_not
from tests.distributed.launch import python
from tests.distributed.on_hosts import rankers
from tests.distributed.warm import warm
from tests.files import contents
from tests.linear.command_data import write_corpus
from tests.required import REQUIRED, missing

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skip tests of Horovod where it is not installed; their names, or those of their parameters, contain it."""
    if launch.HAS_HOROVOD or "horovod" in REQUIRED:
        return
    for item in items:
        if item.path.parent == FOLDER and re.search("horovod|gloo", item.name):
            reason = "Horovod is not installed (make setup compiles it where there is g++): it was not tested"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def fast_start(tmp_path_factory):
    """Fork ranks from a process that has imported everything, which saves 5 seconds in each of over 200 ranks."""
    with ExitStack() as stack:

        @cache
        def command(horovod=True):
            return stack.enter_context(warm(tmp_path_factory.mktemp("warm"), launch.environment(), horovod=horovod))

        launch.fast_start = command
        yield command
        launch.fast_start = None


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    """Return three hosts; the test is skipped, with the reason, where they cannot be made."""
    if problem := why_not():
        missing("sshd", problem)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        (made.folder / "hosts.json").write_text(json.dumps(SLOTS))
        secret = made.folder / "secret"
        secret.write_text("a secret of the test\n")
        secret.chmod(0o600)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """Return a folder with features and labels."""
    return write_corpus(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="session")
def one_model(features, tmp_path_factory):
    """Return the files of the rankers that a single process trains."""
    model = tmp_path_factory.mktemp("one") / "model"
    python("module:xmc_tf.linear.train", *map(str, rankers(features, model)[2:]))
    return contents(model)
