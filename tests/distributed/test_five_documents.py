"""Two of five documents of other systems, step by step; other tests hold the steps of the other three.

``python -m tests.campaigns.five_documents`` follows all of them, on one process and on two ranks over each engine.
"""

import pytest

from tests.campaigns.five_documents import PARALLEL_BERT, TUTORIAL, followed

pytestmark = [pytest.mark.distributed, pytest.mark.full]


@pytest.mark.parametrize(("document", "way"), [(TUTORIAL, "one process"), (PARALLEL_BERT, "2 MPI")])
def test_the_short_steps_of_a_document_work(document, way, tmp_path):
    found = followed(document, way, tmp_path, short=True)
    assert set(found.values()) == {"works"}, found
