"""The windows that long documents are read in, and the number of tokens after the last of them."""

import logging
from dataclasses import dataclass

from xmc_tf.data.reading import Reading

_LOG = logging.getLogger(__name__)


@dataclass
class TruncationCounter:
    """Counts of documents, windows and tokens, including truncated tokens.

    Only the beginning of a very long document is tokenized; its number of tokens is estimated from its characters.
    """

    documents: int = 0
    truncated: int = 0
    tokens: float = 0.0
    tokens_kept: int = 0
    windows: int = 0
    folded: int = 0

    def add(self, tokens: float, kept: int, windows: int = 1) -> None:
        """Count a document of ``tokens`` tokens, of which ``kept`` are kept in ``windows`` windows."""
        self.documents += 1
        self.windows += windows
        self.folded += windows > 1
        self.truncated += tokens > kept
        self.tokens += tokens
        self.tokens_kept += kept

    def log_summary(self, reading: Reading, fix: str) -> None:
        """Log one line if documents have several windows, and one if anything was cut off."""
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
