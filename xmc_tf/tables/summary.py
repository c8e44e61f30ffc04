from dataclasses import dataclass

from xmc_tf.tables.column_names import IDS, column_of
from xmc_tf.tables.splits import SPLITS, TRAIN, VALIDATION
from xmc_tf.tables.store import TableStore

_LEAST_LABELS, _MOST_PAIRS = 20, 1.2  # with so few pairs per label, nearly every label occurs once
_SHOWN = 8  # names of columns


@dataclass(frozen=True)
class Summary:
    """The size and the composition of a data set."""

    documents: dict[str, int]  # by split
    labels: int
    pairs: int  # number of labels of all documents
    bad_rows: dict[str, int]  # by reason
    copies: int  # documents whose text occurs before
    only_in_test: int  # labels that no other documents have
    guesses: list[str]
    single_label: bool = False  # each document has exactly one label
    unused: tuple[str, ...] = ()  # names of columns
    cells: tuple[str, ...] = ()  # some cells of labels in the table

    @property
    def question(self) -> str:
        """A question to print if the labels were probably read incorrectly; otherwise ""."""
        if self.labels < _LEAST_LABELS or self.pairs > _MOST_PAIRS * self.labels:
            return ""
        return (
            f"{self.labels:,} labels for {sum(self.documents.values()):,} documents: nearly every label occurs once, "
            f"too rarely to learn from. {self.asked()}"
        )

    def asked(self) -> str:
        """Return a question about the choice of columns and separator, with some label cells."""
        shown = f" Cells: {', '.join(map(repr, self.cells))}" if self.cells else ""
        return f"Are the columns and the separator right (--text-column, --label-column, --label-separator)?{shown}"

    def text(self) -> str:
        """Format the summary for a terminal."""
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
        if self.question:
            lines.append(self.question)
        if self.unused:
            more = ", …" if len(self.unused) > _SHOWN else ""
            lines.append(f"columns not used: {', '.join(self.unused[:_SHOWN])}{more}")
        if self.only_in_test:
            lines.append(f"{self.only_in_test:,} labels have test documents only: only names can find them")
        if self.bad_rows:
            reasons = ", ".join(f"{count:,} × {reason}" for reason, count in self.bad_rows.items())
            lines.append(f"{sum(self.bad_rows.values()):,} rows were not used: {reasons}")
        return "\n".join([*lines, *(f"guessed: {guess}" for guess in self.guesses)])


def summary_of(store: TableStore) -> Summary:
    one = store.connection.execute
    trained = {label for split in (TRAIN, VALIDATION) for label in store.labels(split).indices.tolist()}
    pairs = int(one("SELECT count(*) FROM document_labels").fetchone()[0])
    columns, names = store.columns, (store.meta("source") or {}).get("columns", ())
    unused: tuple[str, ...] = ()
    if columns is not None:
        labels = {columns.labels, *(columns.labels or "").split(",")}
        used, ids = {*columns.texts, *labels, columns.document, *columns.indicators}, column_of(names, IDS)
        unused = tuple(name for at, name in enumerate(names) if name not in used and at != ids)
    return Summary(
        {split: store.count(split) for split in SPLITS},
        store.nr_labels,
        pairs,
        dict(one("SELECT reason, count(*) FROM bad_rows GROUP BY reason ORDER BY count(*) DESC").fetchall()),
        int(one("SELECT count(*) - count(DISTINCT key) FROM documents").fetchone()[0]),
        store.nr_labels - len(trained),
        list(store.meta("guesses") or []),
        pairs == store.count(),  # rows without a label are not used
        unused,
        tuple(store.meta("label_cells") or ()),
    )
