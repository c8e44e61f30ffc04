"""Choose the text and label columns of a table, by flags or by guessing."""

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.tables.column_names import IDS, LABELS, NO_TEXTS, PEOPLE, TEXTS, TITLES, column_of, is_of_labels, plain
from xmc_tf.tables.columns import YES, ColumnOptions, Columns, labels_of_cell, parts_of, place_of, shown_cell
from xmc_tf.tables.label_cells import (
    BRACKETS,
    NA_LABELS,
    apart_sentence,
    are_whole_floats,
    is_record,
    label_separator,
    separator_sentence,
)
from xmc_tf.tables.text_columns import TRIED, TextColumns, words_of

_LOG = logging.getLogger(__name__)
_USUAL_LABEL = 40  # mean characters of the parts of a cell that are probably labels
_LISTS = 0.2  # share of a column's cells that hold several labels
SAMPLE = 20_000
"""Number of rows from which columns are chosen: many, because rows of the same document may be far apart."""
_FIRST = 1000  # of these rows, for properties that a few rows show
_SHOWN_COLUMNS, _SHOWN_LETTERS = 12, 24  # maximum numbers of columns, and of characters of a cell, in an error
_NO = ("0", "0.0", "false", "no", "-", "falsch", "nein", "")
_LEAST_COLUMNS = 3  # minimum number of columns of 0 and 1 that are labels if there are others too, such as prices
_PAIRS, _PAIRS_WITH_ID = 0.1, 0.01  # shares of rows that repeat a document with another label
_RECORDS = 0.01  # share of a column's cells that may hold dictionaries; their rows are left out
_FEW_CELLS, _VARIED, _WORDS = 8, 0.9, 3  # by which a column named "subject" holds texts: cells, distinct ones, words
_ENTITY = re.compile(r"&(?:#\d{2,6}|#[xX][\da-fA-F]{2,5}|[a-zA-Z]{2,8});")
_LEAST_COPIES, _COPIES = 20, 0.95  # number and share of the documents whose texts contain the cell of their labels


def choose_columns(
    name: str, columns: Sequence[str], sample: Sequence[Sequence[Any]], options: ColumnOptions, *, labelled: bool = True
) -> tuple[Columns, list[str]]:
    """Return the columns to read, and a sentence for each choice that was guessed from the sample of rows."""
    options = _as_trained(options, name, columns, labelled)
    choice = ColumnChoice(name, columns, sample[:_FIRST], options, labelled)
    document = choice.place(options.document, "document") if options.document else None
    places, indicators = choice.labels(document)
    labels = places[0] if places else None
    taken = (*places, *(at for at, _ in indicators))
    found = Columns((), labels, "", document, None, False, indicators, False, places[1:], options.keep_na, options.fold)
    found = choice.separated(found, sample)
    texts = choice.texts((*taken, document), found, sample)
    ids = column_of(columns, IDS, (*places, *texts)) if options.ids is None else choice.place(options.ids, "id")
    trained = options.trained
    same_text = document is None and options.document is None and trained is not None and trained.same_text
    found = choice.with_entities(replace(found, texts=texts, ids=ids, same_text=same_text))
    choice.check(found, taken if labelled else ())
    if labelled and labels is not None and options.document is None and trained is None:
        found = choice.merged(found, sample)
    if labelled and labels is not None:
        choice.warn_of_labels_in_texts(found)
    return found, choice.guesses


class ColumnChoice:
    """Chooses columns based on the options and the first rows; ``guesses`` has a sentence for each guess."""

    def __init__(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], options: ColumnOptions, labelled: bool
    ) -> None:
        self.name, self.columns, self.rows, self.options, self.labelled = name, columns, rows, options, labelled
        self.plain = [*map(plain, columns)]
        self.guesses: list[str] = []

    def place(self, wanted: str, what: str) -> int:
        return place_of(self.name, self.columns, wanted, self.options.named(what))

    def guess(self, text: str, what: str) -> None:
        flag = self.options.named(what).partition("=" if self.options.python else " ")[0]
        self.guesses.append(f"{text} ({flag})")

    def labels(self, document: int | None) -> tuple[tuple[int, ...], list[tuple[int, str]]]:
        """Return the positions of the label columns, or else the positions and names of the columns of 0 and 1."""
        options, columns = self.options, self.columns
        if options.trained is not None and options.trained.indicators and options.labels is None:
            return (), [(at, one) for at, one in enumerate(columns) if one in options.trained.indicators]
        if options.labels is not None:
            places = tuple(self.place(one, "label") for one in _several(options.labels, columns))
            others = [at for at in places if not _are_zeros_and_ones(row[at] for row in self.rows)]
            if len(places) == 1 or len(others) == len(places):
                return tuple(dict.fromkeys(places)), []
            # A column without any cell is one of a rare label.
            if others := [at for at in others if any(shown_cell(row[at]).strip() for row in self.rows)]:
                shown = ", ".join(repr(shown_cell(row[others[0]])[:40]) for row in self.rows[:3])
                raise InputError(
                    f"{self.name}: column {columns[others[0]]!r} has values other than 0 and 1", received=shown,
                    expected="columns of labels, or only columns of 0 and 1, one for each label",
                    fix="change --label-column (in Python, labels)",
                )  # fmt: skip
            return (), [(at, columns[at]) for at in places]
        texts = {self.place(one, "text") for one in options.text or ()}
        labels = self.named_labels({document, *texts})
        if labels is None and len(columns) == 2 and options.text is None:
            text = column_of(columns, TEXTS)
            # Of two columns, the longer one is the text.
            shorter = min((0, 1), key=self.mean_length) if text is None else 1 - text
            labels = None if self.plain[shorter] in NO_TEXTS else shorter
        if labels is None and self.labelled:
            labels = self.only_lists({document, *texts})
        if labels is not None and columns[labels].strip().lower() != "label":
            self.guess(f"labels: column {columns[labels]!r}", "label")
        if labels is not None:
            return (labels,), []
        return (), self.indicators(document) if self.labelled else []

    def indicators(self, document: int | None) -> list[tuple[int, str]]:
        """Return the positions and names of the columns of 0 and 1, each of which stands for a label."""
        columns = self.columns
        longest = max(range(len(columns)), key=self.mean_length, default=0)
        taken = {document, longest, column_of(columns, TEXTS), column_of(columns, IDS)}
        taken |= {self.place(one, "text") for one in self.options.text or ()}
        free = [at for at in range(len(columns)) if at not in taken]
        places = [at for at in free if _are_zeros_and_ones(row[at] for row in self.rows)]
        if len(places) < (_LEAST_COLUMNS if len(places) < len(free) else 2):
            raise self.unknown("labels", "label")
        shown = ", ".join(repr(columns[at]) for at in places[:3]) + (", …" if len(places) > 3 else "")
        self.guess(f"labels: {len(places):,} columns of 0 and 1: {shown}", "label")
        return [(at, columns[at]) for at in places]

    def named_labels(self, taken: Collection[int | None]) -> int | None:
        """Return the position of the first column with a name of labels, if possible one that does not hold texts."""
        first = column_of(self.columns, LABELS, taken)
        while (found := column_of(self.columns, LABELS, taken)) is not None:
            cells = [shown_cell(row[found]) for row in self.rows if row[found]]
            words = sum(map(len, map(words_of, cells)))
            texts = len({*cells}) >= _VARIED * len(cells) and words >= _WORDS * len(cells) >= _WORDS * _FEW_CELLS
            if not texts or any(isinstance(row[found], list | tuple) for row in self.rows) or label_separator(cells):
                return found
            taken = {*taken, found}
        return first

    def separated(self, found: Columns, sample: Sequence[Sequence[Any]]) -> Columns:
        """Return the columns with the separator of labels."""
        options = self.options
        if found.labels is None:
            return found
        cells = [row[at] for row in sample for at in found.label_places]
        cells = [cell for cell in cells if isinstance(cell, str) and not is_record(cell, True)]
        separator = options.separator
        if separator is None:
            separator = "" if found.document is not None else label_separator(cells[:_FIRST])
            flag = "label_separator" if options.python else "--label-separator"
            if apart := apart_sentence(cells[:_FIRST], separator, flag):
                _LOG.warning("%s: %s", self.name, apart)
            if found.document is None and (sentence := separator_sentence(cells, separator, flag)):
                self.guesses.append(sentence)
        missing = [cell.strip() for cell in cells if cell.strip().lower() in NA_LABELS]
        if missing and not found.keep_na and options.trained is None:
            shown = " and ".join(map(repr, dict.fromkeys(missing)))
            flag = "keep_na_labels" if options.python else "--keep-na-labels"
            self.guesses.append(
                f"{len(missing):,} of {len(cells):,} cells of labels are empty: they hold {shown} ({flag})"
            )
        labels = (label for cell in cells for label in labels_of_cell(cell, separator, keep_na=False))
        return replace(found, separator=separator, whole=are_whole_floats(labels))

    def with_entities(self, found: Columns) -> Columns:
        """Return the columns, set to decode entities of HTML if most texts have them, or if it was so in training."""
        if self.options.trained is not None:
            return replace(found, html=self.options.trained.html)
        texts = [found.text_of(row) for row in self.rows if not any(is_record(row[at], False) for at in found.texts)]
        have = sum(_ENTITY.search(text) is not None for text in texts)
        if have < _FEW_CELLS or 2 * have <= len(texts):
            return found
        self.guesses.append(f"texts: HTML entities such as &amp; are decoded, which {have:,} of {len(texts):,} have")
        return replace(found, html=True)

    def texts(self, taken: Sequence[int | None], labels: Columns, sample: Sequence[Sequence[Any]]) -> tuple[int, ...]:
        """Return the positions of the text columns."""
        columns = self.columns
        if self.options.text is not None:
            return tuple(self.place(one, "text") for one in self.options.text)
        rest = [at for at in range(len(columns)) if at not in taken and self.plain[at] not in NO_TEXTS]
        rest = [at for at in rest if not is_of_labels(columns[at]) and self.plain[at] not in PEOPLE]
        rest = [at for at in rest if not any(is_record(row[at], False) for row in self.rows)]
        rows = sample[:: -(-len(sample) // TRIED) or 1]  # tables may be sorted by label
        known = [labels.labels_of(row) if not labels.fault(row) else [] for row in rows]
        free = [at for at in rest if self.plain[at] not in LABELS or self.plain[at] in TITLES]
        choice = TextColumns(columns, rows, free, shown_cell, known).choose(column_of(columns, TEXTS, taken))
        found = choice.texts
        if not found:
            longest = max(rest, key=self.mean_length, default=None if self.labelled else labels.labels)
            if longest is None:
                raise self.unknown("texts", "text")
            found = (longest,)
        named = " and ".join(repr(columns[at]) for at in found)
        if len(found) > 1 or columns[found[0]].strip().lower() != "text":
            measured = f": {choice.measured}" if choice.measured else ""
            self.guess(f"texts: column{'s' * (len(found) > 1)} {named}{measured}", "text")
        if choice.warning:
            flag = self.options.naming([columns[at] for at in choice.better])
            _LOG.warning("%s: %s: %s", self.name, choice.warning, flag)
        return found

    def check(self, found: Columns, labels: Sequence[int]) -> None:
        """Raise an error if a text column is a label column, or if many cells hold dictionaries."""
        if both := set(found.texts) & set(labels):
            raise InputError(
                f"{self.name}: column {self.columns[min(both)]!r} holds the texts and their labels",
                expected="different columns: of a text that contains its labels, a model learns nothing else",
                received=", ".join(repr(shown_cell(row[min(both)])[:_SHOWN_LETTERS]) for row in self.rows[:3]),
                fix=f"{self.options.named('text')}, or {self.options.named('label')}",
            )
        for what, places in (("text", found.texts), ("label", found.label_places if self.labelled else ())):
            for at in places:
                records = [row[at] for row in self.rows if is_record(row[at], what == "label")]
                if len(records) > _RECORDS * len(self.rows):
                    parts = ", ".join(parts_of(self.columns[at], self.columns)[:20])
                    raise InputError(
                        f"{self.name}: column {self.columns[at]!r} holds dictionaries",
                        expected=f"a {what}, or a list of {what}s, in each cell", received=repr(records[0])[:80],
                        fix=f"choose one of {parts}: {self.options.named(what)}" if parts else f"{what}s without keys",
                    )  # fmt: skip

    def warn_of_labels_in_texts(self, found: Columns) -> None:
        """Warn if most texts contain the cell that holds their labels."""
        contained = []
        for row in self.rows:
            if not found.fault(row) and (labels := found.labels_of(row)):
                pattern = r"\W+".join(map(re.escape, labels))
                contained.append(re.search(rf"(?<!\w){pattern}(?!\w)", found.text_of(row), re.IGNORECASE) is not None)
        if sum(contained) >= max(_LEAST_COPIES, _COPIES * len(contained)):
            _LOG.warning(
                "%s: %s of the first %s texts contain their labels as the label column has them: a model learns to "
                "copy them, and its measures are far too high; name other text columns: %s", self.name,
                f"{sum(contained):,}", f"{len(contained):,}", self.options.named("text"),
            )  # fmt: skip

    def merged(self, found: Columns, sample: Sequence[Sequence[Any]]) -> Columns:
        """Return the columns, set to merge rows if the table seems to have one row for each label of a document."""
        readable = [row for row in sample if not found.fault(row)]
        rows = [(found.id_of(row), found.text_of(row), ";".join(found.labels_of(row))) for row in readable]
        by = _rows_are_pairs([row for row in rows if row[1] and row[2]])
        more = "" if self.options.python else ' (--document-column; "" if each row is a document of its own)'
        if by == "id" and (ids := found.ids) is not None:
            how = f"column {self.columns[ids]!r} names the document"
            found = replace(found, document=ids)
        elif by == "text":
            how, found = "rows with the same text are one document", replace(found, same_text=True)
        else:
            return found
        self.guesses.append(f"one row for each label of a document: {how}{more}")
        return found

    def only_lists(self, taken: Collection[int | None]) -> int | None:
        """Return the position of the only column whose cells list short texts; None if there are none or several."""
        found = []
        for at, name in enumerate(self.plain):
            cells = [row[at] for row in self.rows if row[at] and not is_record(row[at], True)]
            if at in taken or name in NO_TEXTS or not cells:
                continue
            separator = label_separator([cell for cell in cells if isinstance(cell, str)])
            lists = [labels_of_cell(cell, separator) for cell in cells]
            if separator not in (BRACKETS, "|", ";") and not any(isinstance(cell, list | tuple) for cell in cells):
                continue
            parts = [part for one in lists for part in one]
            several = sum(len(one) > 1 for one in lists)
            if parts and several >= _LISTS * len(cells) and sum(map(len, parts)) <= _USUAL_LABEL * len(parts):
                found.append(at)
        return found[0] if len(found) == 1 else None

    def mean_length(self, at: int) -> float:
        return sum(len(shown_cell(row[at])) for row in self.rows) / max(len(self.rows), 1)

    def unknown(self, what: str, flag: str) -> InputError:
        """Return an error that asks for the column and shows some cells of each column."""
        shown = []
        for at, column in enumerate(self.columns[:_SHOWN_COLUMNS]):
            cells = [" ".join(shown_cell(row[at]).split()) for row in self.rows[:3]]
            shown.append(f"{column}: {', '.join(repr(cell[:_SHOWN_LETTERS]) for cell in cells)}")
        return InputError(
            f"{self.name}: cannot tell which column holds the {what}", received="; ".join(shown),
            expected="one of " + (", ".join(self.columns[:20]) or "the columns (the table has none)"),
            fix=self.options.named(flag),
        )  # fmt: skip


def _as_trained(options: ColumnOptions, name: str, columns: Sequence[str], labelled: bool) -> ColumnOptions:
    """Return the options; those that are not set are taken from the columns on which the model was trained."""
    trained = options.trained
    if trained is None:
        return options
    wanted = list(trained.texts) if options.text is None else []
    if labelled and options.labels is None and trained.labels is not None:
        wanted.extend(_several(trained.labels, columns))
    if labelled and options.labels is None and not set(trained.indicators) & set(columns):
        wanted.extend(trained.indicators)
    if missing := [column for column in wanted if column not in columns]:
        named = "text" if missing[0] in trained.texts else "label"
        raise InputError(
            f"{name} has no column {missing[0]!r}, which the model was trained on",
            expected="the columns " + ", ".join(wanted),
            received=", ".join(columns[:20]) + (", …" if len(columns) > 20 else ""),
            fix=f"name the column that takes its place: {options.named(named)}",
        )
    return replace(
        options,
        text=trained.texts or None if options.text is None else options.text,
        labels=trained.labels if labelled and options.labels is None else options.labels,
        separator=trained.separator if options.separator is None else options.separator,
        keep_na=trained.keep_na or options.keep_na,
        document=trained.document if options.document is None and trained.document in columns else options.document,
    )


def _several(names: str, columns: Sequence[str]) -> list[str]:
    """Return the column names in a comma-separated text, which may itself be the name of a column."""
    return [names] if names in columns else names.split(",")


def _are_zeros_and_ones(cells: Iterable[Any]) -> bool:
    seen = {shown_cell(cell).strip().lower() for cell in cells}
    return seen <= {*YES, *_NO} and bool(seen - {""})


def _rows_are_pairs(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return how (identifier, text, labels) rows form documents: by "id", by "text", or "" if each row is one."""
    labels: dict[str, set[str]] = {}
    ids: dict[str, str] = {}
    same_id = same_text = 0
    for identifier, text, label in rows:
        known = labels.setdefault(text, set())
        if known and label not in known:
            same_text += 1
            same_id += bool(identifier) and ids[text] == identifier
        known.add(label)
        ids.setdefault(text, identifier)
    # With the same identifier, few rows suffice; without, a few may be copies that were labelled differently.
    if same_id >= max(2, _PAIRS_WITH_ID * len(rows)) and same_id >= 0.9 * same_text:
        return "id"
    return "text" if same_text >= max(2, _PAIRS * len(rows)) else ""
