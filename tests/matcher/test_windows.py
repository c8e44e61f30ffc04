"""Fine-tuning on windows of long documents: each window once an epoch, with its document's labels, on any ranks."""

import numpy as np
import pytest

from tests.matcher import tiny
from xmc_tf.data import TokenStore
from xmc_tf.matcher.candidates import CandidateSampler, EveryNode, LevelData, TrainingBatches, parents_matched
from xmc_tf.matcher.matcher import own_documents
from xmc_tf.matcher.tasks import levels_of

DOCUMENTS = 30


class World:
    """The number of a rank, and of all."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@pytest.fixture
def folded(tmp_path):
    """Return a store of documents of one to five windows, and the documents' labels."""
    texts, Y = tiny.documents(DOCUMENTS)
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 6, DOCUMENTS)
    with TokenStore.create(tmp_path / "tokens") as writer:
        writer.write([text for text, count in zip(texts, counts, strict=True) for _ in range(count)], counts)
    return TokenStore.open(tmp_path / "tokens"), Y


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_window_is_trained_on_with_the_labels_of_its_document(folded, size):
    store, Y = folded
    task = levels_of(tiny.TREE, Y, max_match_clusters=12)[-1]
    data = LevelData(store, EveryNode(task), pad_id=0)
    ranks = [TrainingBatches(data, batch=8, seed=3, rank=rank, size=size) for rank in range(size)]
    alone = TrainingBatches(data, batch=8, seed=3)
    seen = np.zeros(DOCUMENTS, int)
    for step in range(alone.steps_of(0)):
        parts = [one.make(0, step) for one in ranks]
        # The global batch is the same whatever the number of ranks.
        assert sorted(np.concatenate([part.documents for part in parts])) == sorted(alone.make(0, step).documents)
        assert {part.global_count for part in parts} == {sum(len(part.ids) for part in parts)}
        for part in parts:
            np.add.at(seen, part.documents, 1)
            for row, document in enumerate(part.documents):
                labels = part.candidates[part.splits[row] : part.splits[row + 1]]
                assert labels.tolist() == Y[document].indices.tolist()
                assert part.ids[row][part.mask[row] > 0].tolist() == store[store.splits[document]].tolist()
    assert seen.tolist() == np.diff(store.splits).tolist()


def test_only_chosen_documents_are_trained_on(folded):
    store, Y = folded
    task = levels_of(tiny.TREE, Y, max_match_clusters=12)[-1]
    data = LevelData(store, EveryNode(task), pad_id=0, rows=np.array([4, 9]))
    batches = TrainingBatches(data, batch=100, seed=0)
    assert sorted(set(batches.make(0, 0).documents)) == [4, 9]
    assert len(batches.make(0, 0).documents) == np.diff(store.splits)[[4, 9]].sum()


def test_candidates_of_windows_are_those_of_the_document(folded):
    store, Y = folded
    tasks = levels_of(tiny.TREE, Y, max_match_clusters=12)
    sampler = CandidateSampler(tasks[-1], parents_matched(tasks[-1], "tfn", tasks[-2].targets), 3, seed=5)
    batch = TrainingBatches(LevelData(store, sampler, pad_id=0), batch=1000, seed=0).make(0, 0)
    expected = sampler.of(batch.documents, 0)
    assert batch.candidates.tolist() == expected.ids.tolist()
    assert len(batch.splits) == len(store) + 1


@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_share_whole_documents_of_about_as_many_tokens(folded, size):
    store, _ = folded
    ranges = [own_documents(store, World(rank, size)) for rank in range(size)]
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])]
    assert ranges[-1][1] == DOCUMENTS
    tokens = [int(store.document_lengths[low:high].sum()) for low, high in ranges]
    assert max(tokens) - min(tokens) <= 2 * store.document_lengths.max() + DOCUMENTS
