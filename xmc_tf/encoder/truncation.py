"""The number of tokens that are cut off from documents longer than the encoder's maximum length."""

import logging
from dataclasses import dataclass

_LOG = logging.getLogger(__name__)


@dataclass
class TruncationCounter:
    """Counts of documents and tokens, including truncated tokens.

    Only the beginning of a very long document is tokenized; its number of tokens is estimated from its characters.
    """

    documents: int = 0
    truncated: int = 0
    tokens: float = 0.0
    tokens_kept: int = 0

    def add(self, tokens: float, kept: int) -> None:
        """Count a document of ``tokens`` tokens, of which ``kept`` are kept."""
        self.documents += 1
        self.truncated += tokens > kept
        self.tokens += tokens
        self.tokens_kept += kept

    def log_summary(self, max_length: int, fix: str) -> None:
        """Log one line if anything was cut off."""
        if self.truncated:
            _LOG.info(
                "truncated to %s tokens: %.0f %% of %s documents; %.0f %% of all tokens are not read (%s)",
                f"{max_length:,}", 100 * self.truncated / self.documents, f"{self.documents:,}",
                100 * (1 - self.tokens_kept / self.tokens), fix,
            )  # fmt: skip
