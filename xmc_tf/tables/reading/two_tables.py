from collections.abc import Iterator

from xmc_tf.common.errors import InputError
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow


class TwoTables(TableReader):
    """Two tables with the same columns, read one after the other; the second holds the test documents."""

    def __init__(self, first: TableReader, test: TableReader) -> None:
        if first.columns != test.columns:
            raise InputError(
                f"{test.name} has other columns than {first.name}", expected=", ".join(first.columns[:20]),
                received=", ".join(test.columns[:20]), fix="--test-table needs the same columns",
            )  # fmt: skip
        self._parts, self.in_test = (first, test), False
        self.name, self.kind, self.columns = first.name, first.kind, first.columns
        self.size, self.unit = first.size + test.size, first.unit
        sizes = [(one.nr_features, one.nr_labels) for one in self._parts]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"{test.name} does not fit {first.name}", expected=f"{sizes[0][0]:,} features, {sizes[0][1]:,} labels",
                received=f"{sizes[1][0]:,} and {sizes[1][1]:,}",
            )  # fmt: skip
        self.nr_features = sizes[0][0]

    def records(self) -> Iterator[TableRow | BadRow]:
        self.in_test = False
        yield from self._parts[0].records()
        self.in_test = True
        yield from self._parts[1].records()

    def done(self) -> int:
        return sum(part.done() for part in self._parts)
