"""Documents tokenized once into files, and their embeddings."""

import numpy as np
import pytest

from tests.collective.threads import on_ranks
from tests.encoder.tiny import tiny_encoder
from tests.encoder.vocabularies import CORPUS, wordpiece
from tests.refusals import refused
from xmc_tf.data import TextFile, TokenStore
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import TextTokenizer, encode_documents, token_files, tokenize_file
from xmc_tf.encoder.tokenizer import TruncationCounter
from xmc_tf.tables import stored_tokens
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.stored_tokens import StoredTokens


@pytest.fixture(scope="module")
def tokenizer():
    return TextTokenizer.of(wordpiece("bert"))


def same(store, texts, tokenizer, max_length):
    """Return whether the store holds just these texts' tokens."""
    expected = tokenizer.tokenize(texts, max_length)
    return len(store) == len(texts) and all(np.array_equal(store[row], ids) for row, ids in enumerate(expected))


def test_a_file_and_a_list_give_the_same_store(tokenizer, tmp_path):
    texts = [*CORPUS[:50], "", "  ", "x" * 5000]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    from_list = tokenize_file(texts, tokenizer, tmp_path / "a", max_length=16)
    from_file = tokenize_file(TextFile(tmp_path / "texts.txt"), tokenizer, tmp_path / "b", max_length=16)
    assert same(from_list, texts, tokenizer, 16)
    assert from_list.fingerprint == from_file.fingerprint
    assert from_list.about == from_file.about
    assert from_list.lengths.max() == 16


def test_a_store_that_fits_is_taken_again(tokenizer, tmp_path, monkeypatch, caplog):
    texts = CORPUS[:20]
    written = []
    write = token_files._write
    monkeypatch.setattr(token_files, "_write", lambda *given: written.append(given[0]) or write(*given))
    folder = tmp_path / "tokens"
    for _ in range(2):
        assert same(tokenize_file(texts, tokenizer, folder, max_length=16), texts, tokenizer, 16)
    assert len(written) == 1
    other = TextTokenizer.of(wordpiece("bert", lowercase=False))
    assert same(tokenize_file(texts, tokenizer, folder, max_length=17), texts, tokenizer, 17)
    assert same(tokenize_file(texts, other, folder, max_length=17), texts, other, 17)
    assert same(tokenize_file(texts[::-1], other, folder, max_length=17), texts[::-1], other, 17)
    assert len(written) == 4
    (folder / "ids.npy").write_bytes((folder / "ids.npy").read_bytes()[:-2])
    assert same(tokenize_file(texts[::-1], other, folder, max_length=17), texts[::-1], other, 17)
    assert len(written) == 5
    assert "tokenizing again" in caplog.text


@pytest.fixture
def data_set(tmp_path):
    TableStore.create(tmp_path / "data.sqlite").close()
    return tmp_path / "data.sqlite"


def test_tokens_in_a_data_set_are_those_of_the_tokenizer_and_stored_once(data_set, monkeypatch):
    monkeypatch.setattr(stored_tokens, "_MOST", 5)
    texts = ["", "  ", "x" * 5000, *CORPUS[:1100], b"caf\xe9 au lait", CORPUS[0]]
    other, number = wordpiece("bert", lowercase=False), len(set(texts))

    def tokenized(reading, texts=texts, backend=None):
        """Return the number of texts that were tokenized."""
        plain, own = (TextTokenizer.of(backend or wordpiece("bert")) for _ in range(2))
        own.memory = stored = StoredTokens(data_set, writes=True)
        counters = TruncationCounter(), TruncationCounter()
        expected, found = plain.windows(texts, reading, counters[0]), own.windows(texts, reading, counters[1])
        assert [one.tolist() for one in found[0]] == [one.tolist() for one in expected[0]]
        assert np.array_equal(found[1], expected[1])
        assert counters[0] == counters[1]
        return stored.nr_tokenized

    assert tokenized(WindowOptions(7)) == number
    assert tokenized(WindowOptions(7)) == 0
    assert tokenized(WindowOptions(7), [texts[5], "another text", texts[9]]) == 1
    for again in (number, 0):
        assert tokenized(WindowOptions(8)) == again
        assert tokenized(WindowOptions(7, 3)) == again
        assert tokenized(WindowOptions(7, 3, "max")) == 0  # the windows are the same
        assert tokenized(WindowOptions(7), backend=other) == again
    assert tokenized(WindowOptions(9)) == tokenized(WindowOptions(10)) == number
    assert tokenized(WindowOptions(7), texts[:50]) == len(set(texts[:50]))  # the oldest of six are removed
    store = TableStore.open(data_set, write=True)
    store.clear({"format": store.meta("format"), "version": store.meta("version")})
    assert tokenized(WindowOptions(10)) == number


def test_tokens_that_cannot_be_stored_are_computed_again(data_set, tokenizer, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "the disk is full")

    tokenizer.memory = stored = StoredTokens(data_set, writes=True)
    wide = {"a": ([1, 70_000], 9.5), "b": ([], 0.0)}
    stored.put("wide", 9, wide)
    assert stored.get("wide", 9, ["a", "b", "c"]) == wide
    monkeypatch.setattr(TableStore, "writing", full)
    try:
        assert len(tokenizer.tokenize(CORPUS[:1100], 7)) == len(CORPUS[:1100])
    finally:
        tokenizer.memory = None
    assert caplog.text.count("tokens are not stored") == 1


def test_the_first_rank_that_sees_a_folder_writes_it(tokenizer, tmp_path, monkeypatch):
    texts = CORPUS[:20]
    writers = []
    write = token_files._write
    monkeypatch.setattr(token_files, "_write", lambda *given: writers.append(given[2]) or write(*given))
    # Two hosts with disks of their own, two ranks on each.
    for rank in range(4):
        (tmp_path / f"host{rank // 2}").mkdir(exist_ok=True)

    def work(communicator):
        folder = tmp_path / f"host{communicator.rank // 2}" / "tokens"
        return tokenize_file(texts, tokenizer, folder, max_length=16, communicator=communicator)

    stores = on_ranks(4, work)
    assert sorted(folder.parent.name for folder in writers) == ["host0", "host1"]
    assert all(same(store, texts, tokenizer, 16) for store in stores)
    assert [path.name for path in (tmp_path / "host0").iterdir()] == ["tokens"], "no marks are left behind"


def test_ranks_with_different_documents_raise_an_error(tokenizer, tmp_path):
    def work(communicator):
        texts = CORPUS[:20] if communicator.rank != 2 else CORPUS[:21]
        return tokenize_file(texts, tokenizer, tmp_path / "tokens", max_length=16, communicator=communicator)

    for error in on_ranks(3, work):
        assert "of rank 2 differ from those of rank 0" in str(error)


def test_a_rank_that_cannot_write_is_named_by_all(tokenizer, tmp_path, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_files, "_write", full)
    folder = tmp_path / "tokens"
    errors = on_ranks(2, lambda one: tokenize_file(CORPUS[:5], tokenizer, folder, max_length=16, communicator=one))
    assert all("rank 0: [Errno 28] No space left" in str(error) for error in errors)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return documents of all lengths up to 30 tokens."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("store") / "tokens"
    with TokenStore.create(folder) as writer:
        writer.write([rng.integers(10, 60, size) for size in rng.integers(1, 31, 100)])
    return TokenStore.open(folder)


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_embeddings_of_documents(architecture, store):
    encoder = tiny_encoder(architecture, pooling="mean")
    one_by_one = np.concatenate([encoder(*store.padded([row], pad_id=0)).numpy() for row in range(30)])
    rows = np.random.default_rng(1).permutation(30)
    for batch_tokens in (1, 100, 16384):
        embeddings = encode_documents(encoder, store, rows, batch_tokens=batch_tokens)
        np.testing.assert_allclose(embeddings, one_by_one[rows], atol=1e-5)
    np.testing.assert_allclose(encode_documents(encoder, store)[:30], one_by_one, atol=1e-5)
    assert encode_documents(encoder, store, []).shape == (0, 16)


def test_batches_are_of_like_length_and_within_the_budget(store, monkeypatch):
    encoder = tiny_encoder("bert")
    shapes = []

    def noted(ids, mask, training=False):
        shapes.append((ids.shape, int(mask.numpy().sum())))
        return encoder(ids, mask)

    monkeypatch.setattr(encoder, "in_graph", noted)
    encode_documents(encoder, store, batch_tokens=120)
    assert sum(shape[0] for shape, _ in shapes) == 100
    assert all(shape.num_elements() <= 120 for shape, _ in shapes)
    padded = sum(shape.num_elements() for shape, _ in shapes)
    assert store.lengths.sum() / padded > 0.9


def test_what_does_not_fit_is_refused(store, tmp_path):
    encoder = tiny_encoder("bert", max_position_embeddings=20)
    refused("30 tokens are too long", encode_documents, encoder, store)
