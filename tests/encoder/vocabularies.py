"""Small tokenizers of all kinds, made here: WordPiece, Unigram as SentencePiece has it, byte pairs."""

import json
import struct
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parents[2]

CORPUS = [
    *(ROOT / "CONTRIBUTING.md").read_text().splitlines(),
    *(ROOT / "README.md").read_text().splitlines(),
    "Čeština Ångström naïve Straße œuvre, Ελληνικά κόσμος, Привет, мир! İstanbul;",
    "日本語の文 中文分词 한국어 हिन्दी ไทย العربية",
    "aaaa aaa aa bbbb 1000000 2.50 50% <html> [b] (c) {d} a_b user@host http://a.b/c?d=e ... --- === !!! ???",
]


def compiled_charsmap(entries):
    """Return the bytes of SentencePiece's table for these entries: a double array, and the values behind it."""
    values, starts = b"", {}
    for value in sorted(set(entries.values())):
        starts[value] = len(values)
        values += value.encode() + b"\0"
    tree = {}
    for key, value in entries.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = starts[value]
    units, taken, bases = {0: 0}, {0}, set()

    def place(node, at):
        labels = sorted(node)
        offset = 1
        # No two nodes have the same base: one would take the other's children for its own.
        while (at ^ offset) in bases or any((at ^ offset ^ label) in taken for label in labels):
            offset += 1
        assert 0 < offset < 1 << 21, "offsets have 21 bits here"
        bases.add(at ^ offset)
        units[at] |= offset << 10
        taken.update(at ^ offset ^ label for label in labels)
        for label in labels:
            there = at ^ offset ^ label
            if label == 0:
                units[at] |= 1 << 8
                units[there] = node[0] | 1 << 31
            else:
                units[there] = label
                place(node[label], there)

    place(tree, 0)
    size = (max(units) | 255) + 1
    array = b"".join(struct.pack("<I", units.get(place, 0)) for place in range(size))
    return struct.pack("<I", len(array)) + array + values


@cache
def nfkc_charsmap():
    """NFKC for the letters that the tests use, with what SentencePiece adds: spaces, and control characters gone."""
    entries = {}
    ranges = [(0xA0, 0x250), (0x37A, 0x390), (0x1E00, 0x2100), (0x2100, 0x2190), (0x2460, 0x2470), (0x3300, 0x3358)]
    ranges += [(0xFB00, 0xFB07), (0xFDF0, 0xFDFC), (0xFE30, 0xFE50), (0xFF01, 0xFFE7), (0xF900, 0xF910), (0x340, 0x345)]
    for first, last in ranges:
        for point in range(first, last):
            character = chr(point)
            if (composed := unicodedata.normalize("NFKC", character)) != character:
                entries[character] = composed
            decomposed = unicodedata.normalize("NFD", character)
            if len(decomposed) > 1 and unicodedata.normalize("NFC", decomposed) == character:
                entries[decomposed] = character
    entries |= dict.fromkeys("\t\n\r\u1680\u200b\u200e\u2028\u2029\u202f\ufeff\ufffd", " ")
    entries |= dict.fromkeys("\x01\x02\x7f\x8f\x9f", "")
    return compiled_charsmap(entries)


@cache
def wordpiece(kind="bert", lowercase=True):
    """transformers' tokenizer of BERT's kind."""
    frame = ("<s>", "</s>") if kind == "mpnet" else ("[CLS]", "[SEP]")
    special = [*frame, "[UNK]", "<pad>" if kind == "mpnet" else "[PAD]", "<mask>" if kind == "mpnet" else "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{frame[0]} $A {frame[1]}", special_tokens=[(one, tokenizer.token_to_id(one)) for one in frame]
    )
    classes = {
        "bert": transformers.BertTokenizerFast,
        "distilbert": transformers.DistilBertTokenizerFast,
        "electra": transformers.ElectraTokenizerFast,
        "mpnet": transformers.MPNetTokenizerFast,
    }
    names = {"cls_token": frame[0], "sep_token": frame[1], "pad_token": special[3], "mask_token": special[4]}
    if kind == "mpnet":
        names |= {"bos_token": frame[0], "eos_token": frame[1], "unk_token": "[UNK]"}
    return classes[kind](tokenizer_object=tokenizer, do_lower_case=lowercase, **names)


def _sentencepiece_normalizer(kind):
    precompiled, one_space = normalizers.Precompiled(nfkc_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")
    if kind == "t5":
        return precompiled
    if kind == "xlm-roberta":
        return normalizers.Sequence([precompiled, one_space])
    if kind == "deberta-v2":
        return normalizers.Sequence([normalizers.Strip(), precompiled, one_space])
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    plain = [normalizers.NFKD(), normalizers.StripAccents()]
    if kind == "albert":
        plain.append(normalizers.Lowercase())
    return normalizers.Sequence([*quotes, *plain, precompiled, one_space])


@cache
def sentencepiece(kind):
    """transformers' tokenizer of SentencePiece's kind, put together as its converter does it."""
    fairseq = kind in ("xlm-roberta", "t5")
    frame = ("<s>", "</s>") if fairseq else ("<cls>", "<sep>") if kind == "xlnet" else ("[CLS]", "[SEP]")
    mask = "[MASK]" if kind in ("albert", "deberta-v2") else "<mask>"
    pad = "[PAD]" if kind == "deberta-v2" else "<pad>"
    unknown = "[UNK]" if kind == "deberta-v2" else "<unk>"
    special = [frame[0], pad, frame[1], unknown]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = _sentencepiece_normalizer(kind)
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = {
        "xlm-roberta": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]),
        "t5": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]),
        "deberta-v2": pre_tokenizers.Sequence([pre_tokenizers.Punctuation("isolated"), metaspace]),
    }.get(kind, metaspace)
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=special, unk_token=unknown, show_progress=False, max_piece_length=12
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    content = json.loads(tokenizer.to_str())
    # As SentencePiece trains them.
    content["model"]["vocab"] = [[piece, float(np.float32(score))] for piece, score in content["model"]["vocab"]]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens([AddedToken(mask, lstrip=True, normalized=fairseq, special=True)])
    ids = [(one, tokenizer.token_to_id(one)) for one in frame]
    templates = {"xlnet": f"$A:0 {frame[1]}:0 {frame[0]}:2", "t5": f"$A {frame[1]}"}
    template = templates.get(kind, f"{frame[0]} $A {frame[1]}")
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    tokenizer.decoder = decoders.Metaspace()
    classes = {
        "xlm-roberta": transformers.XLMRobertaTokenizerFast,
        "xlnet": transformers.XLNetTokenizerFast,
        "albert": transformers.AlbertTokenizerFast,
        "deberta-v2": transformers.DebertaV2TokenizerFast,
        "t5": transformers.T5TokenizerFast,
    }
    names = {"cls_token": frame[0], "sep_token": frame[1], "pad_token": pad, "unk_token": unknown, "mask_token": mask}
    if kind == "t5":
        names = {"eos_token": frame[1], "pad_token": pad, "unk_token": unknown, "extra_ids": 0}
    return classes[kind](tokenizer_object=tokenizer, **names)


# As their tokenizer.json has them.
MODERN_WORDS = {
    kind: (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    for kind, digits in (("eurobert", r"\p{N}{1,3}"), ("qwen3", r"\p{N}"))
}  # fmt: skip


@cache
def byte_pairs(kind="roberta"):
    """transformers' tokenizer of the kind of RoBERTa, of EuroBERT (that of Llama 3) or of Qwen3-Embedding."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "eurobert"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in MODERN_WORDS:
        split = pre_tokenizers.Split(Regex(MODERN_WORDS[kind]), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        ])  # fmt: skip
    if kind == "qwen3":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    if kind == "eurobert":
        tokenizer = _with_whole_words(tokenizer)
        tokenizer.add_special_tokens([f"<|reserved_special_token_{number}|>" for number in range(251)])
    if kind == "qwen3":
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.decoder = decoders.ByteLevel()
    if kind in MODERN_WORDS:
        return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")
    return transformers.RobertaTokenizerFast(tokenizer_object=tokenizer)


def _with_whole_words(tokenizer):
    """Add tokens to which no merges lead, as Llama 3 has some: only a whole word becomes one of them."""
    content = json.loads(tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    for word in ("Ġzebra", "qqq", "ÄįĠ", "zebra"):
        vocabulary[word] = max(len(vocabulary), max(vocabulary.values()) + 1)
    return Tokenizer.from_str(json.dumps(content))
