"""Tokenizing in bulk and in the graph, against transformers' own tokenizers, on text that is hard."""

import json
import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from tests.encoder.vocabularies import CORPUS, byte_pairs, nfkc_charsmap, sentencepiece, wordpiece
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import TextTokenizer
from xmc_tf.encoder.charsmap import read_charsmap
from xmc_tf.encoder.tokenizer import TruncationCounter

KINDS = {
    "bert": lambda: wordpiece("bert"),
    "bert-cased": lambda: wordpiece("bert", lowercase=False),
    "mpnet": lambda: wordpiece("mpnet"),
    "xlm-roberta": lambda: sentencepiece("xlm-roberta"),
    "xlnet": lambda: sentencepiece("xlnet"),
    "albert": lambda: sentencepiece("albert"),
    "deberta-v2": lambda: sentencepiece("deberta-v2"),
    "t5": lambda: sentencepiece("t5"),
    "roberta": byte_pairs,
    "eurobert": lambda: byte_pairs("eurobert"),
    "qwen3": lambda: byte_pairs("qwen3"),
}
BYTE_PAIRS = "roberta", "eurobert", "qwen3"
LENGTH = 24
LONG = 400
LONGEST_WORD = 100  # up to which SentencePiece's sums are exact, whatever is in it

HARD = [
    "",
    " ",
    "\u00a0",
    "\t\n",
    "a",
    "Hello,   World!",
    " leading and trailing  ",
    "tab\tnew\nline\r\nreturn\x0bvt\x0cff",
    "Ångström ÅNGSTRÖM A\u030angstro\u0308m naïve œuvre Straße ẞ İstanbul ıI ﬁ ﬃ Ǆ ǆ",
    "\u1ea4 \u1edf \u0301 a\u0301\u0323 a\u0323\u0301",
    "e\u0301",
    "x\u0301\u0302\u0303",
    "\ufb01\u0301",
    "\u00bd\u0301x",
    "a\u200d\u0301b",
    "\u0600e\u0301",
    "\r\n\u0301",
    "\u1100\u1161\u0301",
    "\u0344\u0301 \u1fef \u2126 \u212b \u00aa\u0300",
    "Ελληνικά Σς ΆΈ ᾳ ᾼ",
    "Привет, Ёлка й",
    "日本語の文。中文分词，、「」！",
    "한국어 가각 \u1112\u1161\u11ab",
    "हिन्दी क्षि ไทยำ العربية ﷺ עברית",
    "😀😃 👩‍👩‍👧‍👦 🇨🇿 👍🏽 ☂️ ©\u200d®™",
    "\x00\x01\x02a\x7f\x80\x9fb\xadc",
    "\ufeffbom\ufffd\ufffe\uffff\U000e0001\U0010ffff\ue000",
    "\u200b\u200c\u200d\u200e\u2028\u2029\u202f\u205f\u3000\u1680end",
    "x" * 100,
    "x" * 101,
    "ä" * 100 + " " + "ä" * 101,
    "中" * 150,
    "a" * 37,
    "aaa" * 9 + " " + "0" * 21,
    "=" * 40 + "-" * 33,
    "``a'' ```b''' ''''",
    "don't `quote' \"it\"",
    "a_b-c.d/e\\f|g~h^i",
    "10,000.50 $5 €6 50% №7 ½ ² Ⅳ ①",
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "a[SEP]b [SEP ][sep]",
    "<s> </s> <pad> <unk> <mask>",
    "a <mask> b<mask>c  <mask>  <mask>",
    "<cls><sep><eod><eop>",
    "<|reserved_special_token_12|> a<|reserved_special_token_1|>b<|reserved_special_token_|>",
    "<|reserved_special_token_7|><|reserved_special_token_7|",
    "[SE\x00P] [SEP\u0301] ［MASK］ <mask\u200b>",
    "[MASK][MASK] [[MASK]] <<s>>",
    "▁ ▁a ▁▁b a▁b ▁",
    " ▁ x",
    "##a ##",
    "one two " * 30,
    "http://user:pw@host.tld:80/p?q=1&r=%20#f",
    "ｆｕｌｌｗｉｄｔｈ １２３ ﾊﾝｶｸ",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 flag",
    "ﬀ̈ ̈ ͅ",
    "ك\u064bت\u0670 ",
    "\u0e33\u0e49 \u0eb3",
]
BROKEN = [
    b"\xff",
    b"a\xc3",
    b"\xe2\x82 x",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80y",
    b"\xc0\xaf",
    b"ok \xf0\x9f\x98 end",
    b"\xfe\xff\x00a",
]


@cache
def tokenizer(kind):
    """Return our tokenizer of that kind."""
    return TextTokenizer.of(KINDS[kind]())


@cache
def twin(kind, length):
    """Return the tokenizer in the graph."""
    return tokenizer(kind).in_graph(length)


def own_ids(kind, texts, length):
    """Return the ids of transformers' own tokenizer."""
    return KINDS[kind]()(texts, truncation=True, max_length=length)["input_ids"]


def in_graph(kind, texts, length):
    """Return the ids of the graph, without padding."""
    ids, mask = twin(kind, length)(tf.constant(texts, tf.string))
    assert ids.dtype == mask.dtype == tf.int32
    assert ids.shape == mask.shape
    ids, mask = ids.numpy(), mask.numpy()
    if len(texts):
        assert ids.shape[1] == mask.sum(axis=1).max()
    assert (ids[mask == 0] == tokenizer(kind).pad_id).all()
    assert (np.diff(mask, axis=1) <= 0).all()
    return [row[:size].tolist() for row, size in zip(ids, mask.sum(axis=1), strict=True)]


def assert_same(kind, texts, length):
    """Check that all three tokenizers return the same ids."""
    decoded = [text if isinstance(text, str) else text.decode("utf-8", errors="replace") for text in texts]
    expected = own_ids(kind, decoded, length)
    bulk = tokenizer(kind).tokenize(texts, length)
    for text, ids, ours, graph in zip(texts, expected, bulk, in_graph(kind, texts, length), strict=True):
        assert ours.dtype == np.int32
        assert ours.tolist() == ids, f"in bulk: {text!r}"
        assert graph == ids, f"in the graph: {text!r}"


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_hard_texts(kind):
    assert_same(kind, [*HARD, *BROKEN, *CORPUS[:80]], LONG)
    # One by one: what stands beside a text makes no difference.
    for text in HARD[:12]:
        assert in_graph(kind, [text], LONG) == own_ids(kind, [text], LONG)
    assert in_graph(kind, [], LONG) == []


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_texts_that_are_cut(kind):
    assert max(map(len, own_ids(kind, HARD, LONG))) > LENGTH
    assert_same(kind, HARD, LENGTH)
    texts = [" ".join(["word"] * size) for size in range(16, 30)]
    assert_same(kind, texts, LENGTH)


MARKS = ["[SEP]", "<mask>", "[MASK]", "</s>", "'ll", "12345"]
# Parts of hard texts, to be put together at random, and any characters at all.
PARTS = [*HARD, *"aAeEéßİΣ中가́̈᷀‍‌​﻿«»'`\"-_[]<>▁ \u00a0\u3000\t\n\r\x00\x01\u0600", *MARKS]
hard_texts = (
    st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=4)), max_size=8)
    .map("".join)
    .filter(lambda text: max(map(len, [*text.split(), ""])) <= LONGEST_WORD)
)


@every_kind
@settings(max_examples=12)
@given(texts=st.lists(hard_texts, min_size=1, max_size=30))
def test_texts_put_together_at_random(kind, texts):
    assert_same(kind, texts, LONG)


@pytest.mark.full
@pytest.mark.parametrize("kind", BYTE_PAIRS)
def test_ten_thousand_random_texts_in_byte_pairs(kind):
    draw = random.Random(0)
    letters = [*"abcdelmrstvxDELMRSTVX\u017f\u0301é가가ßЖ中ि", "e\u0301", "zebra"]
    others = [*" \n\r\t'!.-_(#1٣½Ⅳ²\u00a0\u2028\u3000\x85😀", "  ", "\r\n", "'S", *MARKS]
    texts = ["".join(draw.choices(letters + 2 * others, k=draw.randrange(1, 20))) for _ in range(10_000)]
    assert len(set(texts)) > 9_000
    assert_same(kind, texts, LONG)


@pytest.mark.full
@pytest.mark.parametrize("kind", BYTE_PAIRS)
def test_every_character_behind_an_apostrophe_and_a_space(kind):
    for before in ("x'", "\n!"):
        texts = ["".join(f"{before}{chr(point)}" for point in range(low, low + 64)) for low in range(0, 0xD800, 64)]
        assert_same(kind, texts, LONG)


@every_kind
@settings(max_examples=5)
@given(texts=st.lists(st.binary(max_size=24), min_size=1, max_size=30))
def test_bytes_that_are_no_utf8(kind, texts):
    assert_same(kind, texts, LONG)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mpnet"])  # which normalizes as BERT does
def test_every_character_of_the_first_plane(kind):
    points = [point for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    characters = [chr(point) for point in points]
    texts = ["a".join(characters[first : first + 64]) for first in range(0, len(characters), 64)]
    assert_same(kind, texts, LONG)


def test_repeated_characters_are_cut_where_the_original_cuts_them():
    # There are many ways to cut them that are equally likely.
    texts = [character * size for character in "a=.-0b" for size in (*range(1, 40), LONGEST_WORD)]
    for kind in ("xlm-roberta", "xlnet"):
        assert_same(kind, texts, LONG)


def test_long_lines():
    draw = random.Random(0)
    words = [word for line in CORPUS for word in line.split()]
    texts = [
        " ".join(draw.choice(words) for _ in range(5_000)),
        "x" * 200_000,
        " " * 50_000 + "end",
        "a\u00a0b" * 10_000,
        "\x00" * 20_000 + " end",
        "word" + " \u200b" * 10_000 + " end",
        "😀 " * 10_000,
    ]
    assert_same("bert", texts, LENGTH)
    for kind in ("bert", "xlnet"):
        assert_same(kind, [texts[0], texts[2], "中文 " * 5_000, "long " + "a" * 2_000], LENGTH)
    own = TextTokenizer.of(byte_pairs())
    for text in texts:
        assert (
            own.tokenize([text], LENGTH)[0].tolist()
            == byte_pairs()(text, truncation=True, max_length=LENGTH)["input_ids"]
        )


def test_a_word_without_end_has_the_pieces_of_its_beginning():
    texts = ["a" * 20_001, "b-" * 30_000]
    for kind in ("xlnet", "albert"):
        assert_same(kind, texts, LENGTH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}, "a space before each text"),
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, "no byte-level BPE"),
        ({"pre_tokenizer": pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex("x+"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)
        ])}, "neither GPT-2's, Llama 3's nor Qwen's"),
        ({"normalizer": normalizers.Lowercase()}, "its normalizer is Lowercase"),
        # As of Gemma 3
        ({"normalizer": normalizers.Replace(" ", "▁"), "model": models.BPE({}, [], byte_fallback=True)}, "_fallback"),
        ({"model": models.BPE({"a": 0, "b": 1}, [])}, "lacks 254 of the 256 bytes"),
        ({"model": models.WordLevel({"a": 0, "b": 1}, unk_token="a")}, "its model is WordLevel, not WordPiece or"),
    ],
)  # fmt: skip
def test_other_byte_pairs_do_not_run_in_the_graph(changes, message):
    changed = TextTokenizer.of(byte_pairs())
    for name, part in changes.items():
        setattr(changed.backend, name, part)
    refused(message, changed.in_graph, LENGTH)


def test_too_short_lengths_are_refused():
    with pytest.raises(InputError, match="of which 2 are special"):
        tokenizer("bert").tokenize(["a"], 2)
    with pytest.raises(InputError, match="of which 2 are special"):
        tokenizer("bert").in_graph(1)
    assert [len(ids) for ids in tokenizer("bert").tokenize(["a b c", ""], 3)] == [3, 2]


def test_what_is_saved_is_read_without_transformers(tmp_path):
    own = tokenizer("bert")
    own.save(tmp_path)
    texts = ["A text with CAPITALS and ünïcode", "", "x" * 300]
    program = (
        "import json, sys; from xmc_tf.encoder import TextTokenizer; own = TextTokenizer.load(sys.argv[1]);"
        "found = [ids.tolist() for ids in own.tokenize(json.loads(sys.argv[2]), 32)];"
        "own.save(sys.argv[3]); print(json.dumps([found, own.fingerprint, own.pad_id, 'transformers' in sys.modules]))"
    )
    copied = tmp_path / "copied"
    copied.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path, json.dumps(texts), copied], capture_output=True, text=True, check=True
    )
    found = [ids.tolist() for ids in own.tokenize(texts, 32)]
    assert json.loads(ran.stdout) == [found, own.fingerprint, own.pad_id, False]
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == {
        path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
    }


def test_settings_beside_the_tokenizer_count(tmp_path):
    TextTokenizer.of(wordpiece("bert")).save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False, "pad_token": "[MASK]"}))
    found, other = TextTokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["A Text", "Ünïcode with ÁCCENTS", "中文"]
    assert [ids.tolist() for ids in found.tokenize(texts, 40)] == other(texts)["input_ids"]
    assert found.pad_id == other.pad_token_id != tokenizer("bert").pad_id
    assert found.fingerprint != tokenizer("bert").fingerprint


@pytest.mark.parametrize(
    "settings", [None, {}, {"pad_token": {"content": "<pad>"}}], ids=["none", "empty", "an object"]
)
def test_the_padding_is_found(tmp_path, settings):
    tokenizer("mpnet").save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert TextTokenizer.load(tmp_path).pad_id == tokenizer("mpnet").pad_id > 0


def test_saved_and_loaded_again_it_is_the_same(tmp_path):
    for kind in KINDS:
        own = tokenizer(kind)
        own.save(tmp_path / kind)
        loaded = TextTokenizer.load(tmp_path / kind)
        assert loaded.fingerprint == own.fingerprint
        assert (loaded.pad_id, loaded.vocabulary_size) == (own.pad_id, own.vocabulary_size)
        assert [ids.tolist() for ids in loaded.tokenize(HARD, LONG)] == own_ids(kind, HARD, LONG)
    assert tokenizer("bert").fingerprint != tokenizer("bert-cased").fingerprint


@pytest.mark.full
@pytest.mark.parametrize("kind", ["xlnet", "eurobert"])
def test_the_graph_survives_saving(kind, tmp_path):
    module = twin(kind, LENGTH)
    tf.saved_model.save(module, str(tmp_path), signatures=module.windows.get_concrete_function())
    loaded = tf.saved_model.load(str(tmp_path))
    for before, after in zip(module(tf.constant(HARD)), loaded(tf.constant(HARD)), strict=True):
        assert np.array_equal(before, after)
    # As servers load it.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        signature = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path)).signature_def["serving_default"]
        texts = {signature.inputs["text"].name: HARD}
        served = session.run({name: one.name for name, one in signature.outputs.items()}, texts)
    for before, after in zip(module.windows(tf.constant(HARD)), sorted(served), strict=True):
        assert np.array_equal(before, served[after])


def test_a_compiled_table_is_read_entry_by_entry():
    entries = read_charsmap(nfkc_charsmap())
    assert len(entries) > 1000
    assert entries["ﬁ"] == "fi"
    assert entries["e\u0301"] == "é"
    assert entries["\u200b"] == " "
    assert entries["\x01"] == ""
    assert "a" not in entries


def test_ids_with_large_gaps_are_refused(tmp_path):
    """Else the first use of the vocabulary takes memory for all ids between: 8 GB for these."""
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 9,
    }
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "a": 1 << 31}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {**model, "vocab": vocabulary}}))
    refused(r"gaps between(.|\n)*received: 2,147,483,648", TextTokenizer.load, tmp_path)


def test_a_pattern_that_takes_too_long_is_an_error_of_the_tokenizer(tmp_path):
    """The library fails in Rust, with an error that is not an Exception: it would end the thread of a server."""
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+[^a]x"}, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": slow}))
    tokenizer = TextTokenizer.load(tmp_path)
    assert tokenizer.tokenize(["a"], 8)[0].tolist() == [1]
    refused(r"the tokenizer failed(.|\n)*patterns in tokenizer.json", tokenizer.tokenize, ["a" * 60 + "!!"], 8)


def test_tokenizers_that_cannot_be_rebuilt_are_refused():
    changed = TextTokenizer.of(wordpiece("bert"))
    changed.backend.normalizer = normalizers.NFKC()
    refused("its normalizer is NFKC, not BERT's", changed.in_graph, LENGTH)
    changed = TextTokenizer.of(wordpiece("bert"))
    changed.backend.add_special_tokens([AddedToken("[A]", normalized=False), AddedToken("A][A", normalized=False)])
    refused("overlap", changed.in_graph, LENGTH)
    changed = TextTokenizer.of(sentencepiece("albert"))
    changed.backend.normalizer = normalizers.Sequence([normalizers.NFKC()])
    refused("several characters at once", changed.in_graph, LENGTH)


def test_what_is_cut_off_is_counted_and_logged(caplog):
    own, counted = tokenizer("bert"), TruncationCounter()
    texts = ["a b c d e f g h", "a b", "", "a " * 5000]
    kept = own.tokenize(texts, 6, counted)  # four tokens between the special ones
    assert [len(ids) - 2 for ids in kept] == [4, 2, 0, 4]
    assert (counted.documents, counted.truncated, counted.tokens_kept) == (4, 2, 10)
    whole = sum(len(ids) - 2 for ids in own.tokenize(texts, 10_000))
    assert counted.tokens == pytest.approx(whole, rel=0.05)  # of the longest only a part was tokenized
    with caplog.at_level("INFO", logger="xmc_tf"):
        counted.log_summary(WindowOptions(6), "fix: raise --truncate-length")
        TruncationCounter(3, 0, 9, 9).log_summary(WindowOptions(6), "nothing to say")
    assert [record.getMessage() for record in caplog.records] == [
        "truncated to 6 tokens: 2 of 4 documents (50 %); 100 % of all tokens are not read "
        "(fix: raise --truncate-length)"
    ]
