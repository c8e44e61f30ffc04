"""The content of a data set, in numbers."""

from dataclasses import dataclass

from xmc_tf.tables.splits import SPLITS, TRAIN, VALIDATION
from xmc_tf.tables.store import TableStore


@dataclass(frozen=True)
class Summary:
    """The content of a data set, in numbers.

    Args:
        documents: number of documents by split.
        labels: number of labels.
        pairs: number of labels of all documents.
        bad_rows: number of rows that were not used, by reason.
        copies: documents whose text occurs before.
        only_in_test: number of labels that no other documents than test documents have.
        guesses: sentences about what was guessed.
        single_label: whether each document has exactly one label.
    """

    documents: dict[str, int]
    labels: int
    pairs: int
    bad_rows: dict[str, int]
    copies: int
    only_in_test: int
    guesses: list[str]
    single_label: bool = False

    def text(self) -> str:
        """Return the summary as lines for a terminal."""
        total = sum(self.documents.values())
        lines = [
            f"{total:,} documents: " + ", ".join(f"{count:,} {split}" for split, count in self.documents.items()),
            f"{self.labels:,} {'label' if self.labels == 1 else 'labels'}, "
            + ("one per document" if self.single_label else f"{self.pairs / max(total, 1):.1f} per document"),
        ]
        if self.copies:
            lines.append(f"{self.copies:,} documents repeat an earlier text; copies are in one split")
        if self.labels == 1:
            lines.append("with one label, there is nothing to choose between: every prediction is this label")
        if self.only_in_test:
            lines.append(f"{self.only_in_test:,} labels have test documents only: they cannot be learned")
        if self.bad_rows:
            reasons = ", ".join(f"{count:,} × {reason}" for reason, count in self.bad_rows.items())
            lines.append(f"{sum(self.bad_rows.values()):,} rows were not used: {reasons}")
        return "\n".join([*lines, *(f"guessed: {guess}" for guess in self.guesses)])


def summary_of(store: TableStore) -> Summary:
    """Return what a prepared data set holds."""
    one = store.connection.execute
    trained = {label for split in (TRAIN, VALIDATION) for label in store.labels(split).indices.tolist()}
    pairs = int(one("SELECT count(*) FROM document_labels").fetchone()[0])
    return Summary(
        {split: store.count(split) for split in SPLITS},
        store.nr_labels,
        pairs,
        dict(one("SELECT reason, count(*) FROM bad_rows GROUP BY reason ORDER BY count(*) DESC").fetchall()),
        int(one("SELECT count(*) - count(DISTINCT key) FROM documents").fetchone()[0]),
        store.nr_labels - len(trained),
        list(store.meta("guesses") or []),
        pairs == store.count(),  # rows without a label are not used
    )
