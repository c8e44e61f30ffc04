"""Small tables in the shapes that people have: column names, lengths, gaps and numbers of labels as in real ones."""

import csv
import json
import random
import sqlite3

import pytest

_TOPICS = 8
_SYLLABLES = ["bcdfghjklmnprstvwxyz"[at] + "aeiou"[at % 5] for at in range(20)]
_SMALL = ("the", "of", "and", "in", "to", "is", "for", "with", "on", "a", "that", "it", "as", "by", "from", "at")
_MANY = [a + b + c for a in _SYLLABLES for b in _SYLLABLES[:8] for c in _SYLLABLES[:4]]
_LABELS = ("harbour", "forest", "rail", "music", "energy", "health", "school", "market")
_KANJI = [chr(0x4E00 + 7 * at) for at in range(400)]


class _Row:
    """The cells of one row, which is about one or more topics."""

    def __init__(self, chance, number, most):
        self.chance, self.number = chance, number
        self.topics = chance.sample(range(_TOPICS), chance.randint(1, most))

    def words(self, count, signal):
        """Return about ``count`` words, of which a share is of the row's topics."""
        chance, found = self.chance, []
        for _ in range(max(1, round(count * chance.uniform(0.6, 1.4)))):
            if chance.random() < signal:
                found.append("q" + _MANY[40 * chance.choice(self.topics) + int(25 * chance.random() ** 2)])
            else:
                found.append(chance.choice(_SMALL) if chance.random() < 0.4 else chance.choice(_MANY[320:]))
        return found

    def cell(self, kind, *numbers):
        chance, number = self.chance, self.number
        person = f"{chance.choice(_MANY).title()}, {chance.choice(_MANY).title()}"
        match kind:
            case "prose":
                return " ".join(self.words(*numbers)).capitalize() + "."
            case "title":
                return " ".join(self.words(*numbers)).title()
            case "list":
                return [" ".join(self.words(numbers[0] / 4, numbers[1])) for _ in range(4)]
            case "kanji":
                own = [_KANJI[ord(word[0])] + _KANJI[100 + ord(word[-1])] for word in self.words(*numbers)]
                return "".join(own) + "。"
            case "html":
                return f"<p>{' '.join(self.words(*numbers))} &amp; more</p>"
            case "same":  # the same on nearly all rows
                return " ".join(_MANY[number % 3 : number % 3 + int(numbers[0])])
            case "log":
                return f"{' '.join(self.words(*numbers))} id={number} rc={chance.randint(0, 9)}"
            case "few":
                return f"{_MANY[chance.randrange(int(numbers[0]))]}"
            case "id":
                return str(1000 + number)
            case "code":
                return f"{chance.randrange(16**6):06X}-{chance.randrange(99):02d}"
            case "date":
                return f"20{number % 24:02d}-0{number % 9 + 1}-1{number % 10}"
            case "price":
                return f"{chance.uniform(1, 90):.2f}"
            case "url":
                return f"https://example.org/{_MANY[number % 500]}/{number}"
            case "person":
                return person
            case "people":
                return f"{person}; {chance.choice(_MANY).title()}, {chance.choice(_MANY).title()}"
            case "lang":
                return ("en", "de", "fi")[number % 3]
            case "embedding":
                return " ".join(f"{chance.random():.3f}" for _ in range(int(numbers[0])))
            case "one":
                return _LABELS[self.topics[0]]
            case "number":
                return str(self.topics[0])
            case "path":
                return f"Home > {_LABELS[self.topics[0]].title()} > {_LABELS[self.topics[-1]].title()}"
            case "labels" | "bar" | "semicolon" | "comma":
                own = [_LABELS[at] for at in self.topics]
                return own if kind == "labels" else {"bar": "|", "semicolon": "; ", "comma": ", "}[kind].join(own)
            case "records":
                return [{"id": at, "name": _LABELS[at]} for at in self.topics]
        raise ValueError(kind)

    def parsed(self, form):
        """Return a cell by its form: ``prose 80 .2 ?.6`` has 80 words, a fifth of the topics, in 60 % of the rows."""
        kind, *numbers = form.split()
        filled = float(numbers.pop()[1:]) if numbers and numbers[-1].startswith("?") else 1
        value = self.cell(kind, *map(float, numbers))
        return value if self.chance.random() < filled else None


def rows_of(forms, count=240, seed=0):
    """Return rows, as dictionaries, of columns by name and form; ``*`` of a name is a column of 0 and 1 per topic."""
    chance, rows = random.Random(seed), []
    most = 3 if any(form.split()[0] in ("labels", "bar", "semicolon", "comma", "records", "marks", "path")
                    for form in forms.values()) else 1  # fmt: skip
    for number in range(count):
        row, made = _Row(chance, number, most), {}
        for name, form in forms.items():
            if form == "marks":
                made |= {label: int(at in row.topics) for at, label in enumerate(_LABELS)}
            else:
                made[name] = row.parsed(form)
        rows.append(made)
    return rows


def _nested(row):
    found = {}
    for name, value in row.items():
        *records, own = name.split(".")
        place = found
        for one in records:
            place = place.setdefault(one, {})
        if value is not None:
            place[own] = value
    return found


def _flat(value):
    return "" if value is None else repr(value) if isinstance(value, list) else value


def written(rows, form, folder):
    """Write a table and return its path; ``frame`` is a dictionary of columns, ``rows`` a list of dictionaries."""
    names = list(rows[0])
    path = folder / f"table.{form}"
    match form:
        case "frame":
            return {name: [row[name] for row in rows] for name in names}
        case "rows":
            return [_nested(row) for row in rows]
        case "csv" | "tsv":
            with path.open("w", encoding="utf-8", newline="") as file:
                out = csv.writer(file, delimiter="\t" if form == "tsv" else ",")
                out.writerow(names)
                out.writerows([_flat(row[name]) for name in names] for row in rows)
        case "jsonl":
            path.write_text("".join(json.dumps(_nested(row)) + "\n" for row in rows), encoding="utf-8")
        case "json":
            path.write_text(json.dumps([_nested(row) for row in rows], indent=1), encoding="utf-8")
        case "parquet":
            pyarrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
        case "sqlite":
            quoted = ", ".join(f'"{name}"' for name in names)
            with sqlite3.connect(path) as database:
                database.execute(f"CREATE TABLE documents ({quoted})")
                database.executemany(
                    f"INSERT INTO documents VALUES ({', '.join('?' * len(names))})",
                    [[_flat(row[name]) or None for name in names] for row in rows],
                )
            database.close()
    return path
