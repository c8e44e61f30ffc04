"""Load and save tokenizers, which convert many texts to token ids at once."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from tokenizers import Tokenizer

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.data.tokens import Tokens
from xmc_tf.data.windows import WindowOptions, window_bounds
from xmc_tf.encoder.sentence_transformers import maximum_length, read_prompt, write_prompt
from xmc_tf.encoder.sources import WEIGHT_ENDINGS, EncoderSource, auto_tokenizer, quiet_transformers
from xmc_tf.store.checksums import verify

if TYPE_CHECKING:
    from xmc_tf.encoder.graph_tokenizer import GraphTokenizer

_LOG = logging.getLogger(__name__)
_MAIN = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
# Settings of BERT's tokenizers that override the normalizer in tokenizer.json.
_OF_NORMALIZER = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars",
}  # fmt: skip
_PADDING = ("[PAD]", "<pad>")  # if the settings do not name it
# The tokenizer without padding and truncation, the padding id, and a function that writes the files into a folder.
Parts = tuple[Tokenizer, int, Callable[[Path], object]]


@dataclass
class TruncationCounter:
    """Counts of documents, windows and tokens; the tokens of very long documents are estimated from their length."""

    documents: int = 0
    truncated: int = 0
    tokens: float = 0.0
    tokens_kept: int = 0
    windows: int = 0
    folded: int = 0

    def add(self, tokens: float, kept: int, windows: int = 1) -> None:
        """Count one document: its tokens, how many of them are kept, and its windows."""
        self.documents += 1
        self.windows += windows
        self.folded += windows > 1
        self.truncated += tokens > kept
        self.tokens += tokens
        self.tokens_kept += kept

    def log_summary(self, reading: WindowOptions, fix: str) -> None:
        """Log how many documents have several windows, and how many were truncated; nothing if there are none."""
        tokens = f"{reading.max_length:,} tokens"
        if self.folded:
            _LOG.info(
                "longer than %s: %.1f %% of %s documents, read in several windows each; %s windows in all",
                tokens, 100 * self.folded / self.documents, f"{self.documents:,}", f"{self.windows:,}",
            )  # fmt: skip
        if self.truncated:
            _LOG.info(
                "truncated to %s: %s of %s documents (%.0f %%); %.0f %% of all tokens are not read (%s)",
                tokens if reading.max_windows == 1 else f"{reading.max_windows:,} windows of {tokens}",
                f"{self.truncated:,}", f"{self.documents:,}", 100 * self.truncated / self.documents,
                100 * (1 - self.tokens_kept / self.tokens), fix,
            )  # fmt: skip


Text = str | bytes
_CHUNK = 1024

# A long text is cut before tokenizing, at a space after a letter or digit, where a cut changes no earlier word.
_WORD_END = re.compile(r"[^\W_](?= )")
# The first attempt takes this many characters per token, each further one four times as many. Few words are longer.
_CHARACTERS_PER_TOKEN = 16
_MOST_IDS, _FEW_TOKENS = 16, 100_000  # ids may not exceed 16 × (number of tokens + 100,000)


class TokenMemory(Protocol):
    """Tokens of earlier calls, by checksum of the tokenizer, number of tokens that are kept, and text."""

    def get(self, tokenizer: str, limit: int, texts: Sequence[str]) -> dict[str, Tokens]:
        """Return the tokens of those texts that are known."""
        ...

    def put(self, tokenizer: str, limit: int, found: Mapping[str, Tokens]) -> None:
        """Remember the tokens of texts."""
        ...


class TextTokenizer:
    memory: TokenMemory | None = None
    """Where tokens are looked up before texts are tokenized."""
    made_for: int | None = None
    """Maximum number of tokens that the encoder was trained for, if its folder says so."""

    def __init__(self, backend: Tokenizer, pad_id: int, save: Callable[[Path], object], prompt: str = "") -> None:
        self.backend, self.pad_id, self._save = backend, pad_id, save
        self.prompt = prompt  # before each text; tokens of the text fill the rest of the maximum length
        self.nr_of_prompt = len(backend.encode(prompt, add_special_tokens=False).ids) if prompt else 0
        vocabulary = self.backend.get_vocab()
        self.vocabulary_size = max(vocabulary.values()) + 1
        if self.vocabulary_size > _MOST_IDS * (len(vocabulary) + _FEW_TOKENS):  # ids take memory later on
            raise InputError(
                "the gaps between the tokenizer's ids are too large",
                expected=f"ids below {_MOST_IDS * (len(vocabulary) + _FEW_TOKENS):,}, for {len(vocabulary):,} tokens",
                received=f"{self.vocabulary_size - 1:,}", fix="correct tokenizer.json, or copy it again",
            )  # fmt: skip
        # Equal for tokenizers that produce the same ids.
        self.fingerprint = hashlib.sha256((backend.to_str() + prompt).encode()).hexdigest()[:32]
        self.before, self.behind = _frame(self.backend)
        self._nr_special = len(self.before) + len(self.behind)

    @classmethod
    def of(cls, tokenizer: Any, prompt: str = "") -> Self:
        """Return a tokenizer that produces the same ids as a fast tokenizer of transformers."""
        return cls(*_of_transformers(tokenizer), prompt)

    @classmethod
    def load(
        cls, name_or_folder: str | Path, *, cache_dir: str = "", prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> Self:  # fmt: skip
        """Load a tokenizer from a name on the hub, a folder, or a PECOS folder with ``text_tokenizer`` inside.

        ``prompt`` is put before each text; by default, the folder's prompt of the name ``prompt_name``, or that for
        documents.
        """
        source = EncoderSource(name_or_folder, "tokenizer", cache_dir)
        verify(source.folder, skip=WEIGHT_ENDINGS)
        prompt = read_prompt(source, prompt, prompt_name)
        with _failures_as_errors():
            try:
                out = cls(*(_read_main_file(source) or _of_transformers(auto_tokenizer(source))), prompt)
                out.made_for = maximum_length(source, out.lowers)
                return out
            except InputError:
                raise
            except ImportError as error:
                raise InputError(
                    f"the tokenizer in {source.name} needs a package that is not installed",
                    expected="tokenizer.json",
                    received=str(error).strip().splitlines()[0],
                    fix="run AutoTokenizer.from_pretrained(…).save_pretrained(folder) where that package is installed",
                ) from None
            except Exception as error:  # noqa: BLE001  tokenizers raises Exception for an unreadable file
                raise source.not_found(error) from None

    def tokenize(
        self, texts: Sequence[Text], max_length: int, truncation: TruncationCounter | None = None
    ) -> list[np.ndarray]:
        """Return each text's token ids with special tokens, cut to ``max_length``; invalid UTF-8 becomes U+FFFD."""
        return self.windows(texts, WindowOptions(max_length), truncation)[0]

    def windows(
        self, texts: Sequence[Text], reading: WindowOptions, truncation: TruncationCounter | None = None
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the int32 ids of each window with special tokens, in text order, and each text's number of windows."""
        self.check_max_length(reading.max_length)
        prompt, most = self.nr_of_prompt, reading.max_windows
        limit = reading.max_length - self._nr_special - prompt
        found: list[np.ndarray] = []
        counts: list[int] = []
        iterator = iter(texts)
        while chunk := list(islice(iterator, _CHUNK)):
            decoded = [text if isinstance(text, str) else text.decode("utf-8", errors="replace") for text in chunk]
            for ids, tokens in self._tokens_of(decoded, prompt + most * limit):
                bounds = window_bounds(max(len(ids) - prompt, 0), limit, most)
                counts.append(len(bounds))
                before, inner = [*self.before, *ids[:prompt]], ids[prompt:]  # each window begins with the prompt
                found += [np.array([*before, *inner[low:high], *self.behind], np.int32) for low, high in bounds]
                if truncation is not None:
                    truncation.add(tokens, len(ids), len(bounds))
        return found, np.array(counts, np.int32)

    def _tokens_of(self, texts: list[str], limit: int) -> list[Tokens]:
        """Return the first ``limit`` token ids of each text; those in the memory are not computed."""
        known = {} if self.memory is None else self.memory.get(self.fingerprint, limit, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            new = dict(zip(missing, self._computed(missing, limit), strict=True))
            if self.memory is not None:
                self.memory.put(self.fingerprint, limit, new)
            known |= new
        return [known[text] for text in texts]

    def _computed(self, texts: list[str], limit: int) -> Iterator[Tokens]:
        # No settings of the tokenizer change, so that several threads may use it.
        texts = [self.prompt + text for text in texts] if self.prompt else texts
        with _failures_as_errors():
            beginnings = [self._beginning(text, limit) for text in texts]
            encoded = self.backend.encode_batch_fast(beginnings, add_special_tokens=False)
        for text, beginning, one in zip(texts, beginnings, encoded, strict=True):
            yield one.ids[:limit], len(one.ids) * len(text) / max(len(beginning), 1)

    @property
    def nr_before_text(self) -> int:
        """Number of tokens before those of a text: special ones and a prompt's; 0 without a prompt."""
        return len(self.before) + self.nr_of_prompt if self.prompt else 0

    @property
    def lowers(self) -> bool:
        """Whether it converts texts to lower case."""
        return self.backend.normalizer is not None and self.backend.normalizer.normalize_str("A") == "a"

    def check_max_length(self, max_length: int) -> None:
        """Raise an InputError if a maximum length cannot hold the special tokens and one other token."""
        fixed, of_prompt = self._nr_special + self.nr_of_prompt, self.nr_of_prompt
        if max_length <= fixed:
            raise InputError(
                "the maximum length is too small for this tokenizer",
                expected=f"{fixed + 1} tokens or more, of which {self._nr_special} are special ones"
                + (f" and {of_prompt} those of the prompt" if of_prompt else ""),
                received=str(max_length),
                fix="choose a larger maximum length (truncate_length)",
            )

    def in_graph(self, max_length: int, max_windows: int = 1) -> "GraphTokenizer":
        """Return `windows` as a graph; raise an InputError for tokenizers that cannot run in one."""
        from xmc_tf.encoder.graph_tokenizer import GraphTokenizer  # it loads TensorFlow

        self.check_max_length(max_length)
        return GraphTokenizer(self, WindowOptions(max_length, max_windows))

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer's files to a folder, which may also contain the encoder."""
        self._save(Path(folder))
        if self.prompt:
            write_prompt(Path(folder), self.prompt)

    def _beginning(self, text: str, limit: int) -> str:
        """Return a prefix of the text that is long enough to determine its first ``limit`` tokens."""
        size = _CHARACTERS_PER_TOKEN * limit
        while size < len(text):
            end = _WORD_END.search(text, size)
            if end is None:
                return text
            if len(self.backend.encode(text[: end.end()], add_special_tokens=False).ids) >= limit:
                return text[: end.end()]
            size = 4 * end.end()
        return text


@contextmanager
def _failures_as_errors() -> Iterator[None]:
    """Raise InputError if the tokenizer's library fails, for example because a pattern takes too long for a text."""
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":  # a failure in Rust, which is not an Exception
            raise
        raise InputError(
            "the tokenizer failed", expected="patterns in tokenizer.json that match any text in reasonable time",
            received=str(error)[:200], fix="use the tokenizer that was saved with the encoder",
        ) from None  # fmt: skip


def _frame(backend: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens before and after every text."""
    inner, whole = backend.encode("a", add_special_tokens=False).ids, backend.encode("a").ids
    empty = backend.encode("").ids
    for start in range(len(empty) + 1):
        if whole == empty[:start] + inner + empty[start:]:
            return empty[:start], empty[start:]
    raise InputError(
        "the tokenizer inserts special tokens within a text",
        expected="special tokens only at the start and the end of a text",
        received=f"{inner} for 'a', {whole} with special tokens, {empty} for an empty text",
    )


def _read_main_file(source: EncoderSource) -> Parts | None:
    """Read tokenizer.json and the settings next to it without transformers; return None if there is no such file."""
    # transformers 5 would keep only the vocabulary and build its own tokenizer, with other ids for some architectures.
    content = source.read(_MAIN)
    if content is None:
        return None
    beside = {name: found for name in _SETTINGS if (found := source.read(name)) is not None}
    settings: dict[str, Any] = {}
    for name in reversed(beside):
        settings |= parse_json(beside[name], of=f"{source.name}: {name}", foreign=True)
    config = parse_json(content, of=f"{source.name}: {_MAIN}", foreign=True)
    normalizer = config.get("normalizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        normalizer |= {ours: settings[theirs] for theirs, ours in _OF_NORMALIZER.items() if theirs in settings}
    backend = _bare(Tokenizer.from_str(json.dumps(config)))

    def save(folder: Path) -> None:
        for name, one in {_MAIN: content, **beside}.items():
            (folder / name).write_bytes(one)

    named = settings.get("pad_token")
    for one in (named.get("content") if isinstance(named, dict) else named, *_PADDING):
        if isinstance(one, str) and (number := backend.token_to_id(one)) is not None:
            return backend, int(number), save
    return backend, 0, save


def _of_transformers(tokenizer: Any) -> Parts:
    """Return the backend, padding id and save function of a fast tokenizer of transformers."""
    if not tokenizer.is_fast:
        raise InputError(
            f"no fast tokenizer was found for {tokenizer.name_or_path}", expected="a folder with tokenizer.json"
        )

    def save(folder: Path) -> None:
        with quiet_transformers():
            tokenizer.save_pretrained(folder)

    # A copy of the backend, because the tokenizer must keep its own truncation settings.
    backend = _bare(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    return backend, int(tokenizer.pad_token_id or 0), save


def _bare(backend: Tokenizer) -> Tokenizer:
    backend.no_padding()
    backend.no_truncation()
    return backend
