"""The answers to the page: the next text with suggestions, labels by name, progress, and files of all labels."""

import csv
import heapq
import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.report.sections.examples import deciding_words
from xmc_tf.server.application import HttpAnswer, RefusedError
from xmc_tf.server.labelling.learning import Learner
from xmc_tf.server.labelling.store import DONE, OPEN, SKIPPED, LabelStore, StoredText
from xmc_tf.tables.label_cells import folded

_SUGGESTIONS, _WORDS = 8, 12
_LEAST_PART = 0.2  # of the largest contribution of a word
_FOUND, _READ = 12, 100  # labels of a search, and their names
_EXPLAINED = 100_000  # characters
_TURN = 10  # one text in so many is a random one, which is held out
_LONGEST_NAME, _MOST_PEOPLE, _LONGEST_QUERY = 40, 100, 200


class NameSearch:
    """Labels by any of their names: names that begin with the query come first, then the shortest."""

    def __init__(self, lines: Sequence[str]) -> None:
        names = [[name.strip() for name in line.split("\t") if name.strip()] or [line] for line in lines]
        self.labels = {own[0] for own in names}
        self._names = [(folded(name), name, own[0]) for own in names for name in own]

    def find(self, query: str) -> list[dict[str, str]]:
        wanted = folded(query)
        hits = [
            (name != wanted, not name.startswith(wanted), f" {wanted}" not in name, len(name), shown, label)
            for name, shown, label in self._names
            if wanted in name
        ]
        found: dict[str, str] = {}
        for *_, shown, label in heapq.nsmallest(_READ, hits):
            found.setdefault(label, shown)
        return [{"label": label, "name": name} for label, name in found.items()][:_FOUND]


class Desk:
    """The answers to the page's requests. Anything that does not fit is refused.

    Args:
        store: the texts and answers.
        learner: the model.
        lines: the names of all labels; alternative names follow after tabs.
        uris: identifiers of the labels, if there are some.
    """

    def __init__(
        self, store: LabelStore, learner: Learner, lines: Sequence[str], uris: Mapping[str, str] | None = None
    ) -> None:
        self._store, self._learner, self._search, self._uris = store, learner, NameSearch(lines), uris or {}
        self._lock = threading.Lock()  # two people must not get the same text
        self.posts: dict[str, Callable[[dict[str, Any]], Any]] = {
            "/text": self._text, "/answer": self._answer, "/finish": self._finish, "/search": self._find,
        }  # fmt: skip
        self.gets: dict[str, Callable[[], Any]] = {
            "/progress": self._progress, "/labels.csv": self._csv, "/labels.jsonl": self._jsonl,
            "/annif.tsv": self._annif,
        }  # fmt: skip

    def _person(self, question: dict[str, Any]) -> str:
        name = " ".join(_field(question, "person", str).split())
        if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
            raise RefusedError(400, f"person must be a name of 1 to {_LONGEST_NAME} characters")
        people = self._store.people()
        if name not in people and len(people) >= _MOST_PEOPLE:
            raise RefusedError(400, f"there are {_MOST_PEOPLE} people already; use one of their names")
        return name

    def _stored(self, question: dict[str, Any]) -> StoredText:
        number = _field(question, "text", int)
        found = self._store.text(number) if 0 <= number < 1 << 60 else None
        if found is None:
            raise RefusedError(400, f"there is no text {number}")
        return found

    def _text(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return a text: the given one, the one that the person visited before it, or the next."""
        person = self._person(question)
        if question.get("back") is True:
            number = self._store.before(person, self._stored(question).id if "text" in question else None)
            if number is None:
                raise RefusedError(422, "this is the first text")
            return self._shown(number, person)
        return self._shown(self._stored(question).id if "text" in question else self._next(person), person)

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        person, stored = self._person(question), self._stored(question)
        label, answer = _field(question, "label", str), _field(question, "answer", int)
        if answer not in (-1, 0, 1):
            raise RefusedError(400, "answer must be 1 (accepted), -1 (rejected) or 0 (neither)")
        if label not in self._search.labels:
            raise RefusedError(400, f"there is no label {label[:60]!r}")
        self._store.answer(stored.id, label, person, answer)
        return {"label": label, "answer": answer}

    def _finish(self, question: dict[str, Any]) -> dict[str, Any]:
        """Keep that a text is finished, or skipped, and return the next one."""
        person, stored = self._person(question), self._stored(question)
        self._store.visit(stored.id, person, SKIPPED if question.get("skip") is True else DONE)
        self._learner.notice()
        return self._shown(self._next(person), person)

    def _find(self, question: dict[str, Any]) -> dict[str, Any]:
        query = _field(question, "query", str).strip()
        if len(query) > _LONGEST_QUERY:
            raise RefusedError(400, f"a query may have {_LONGEST_QUERY} characters")
        return {"labels": self._search.find(query) if query else []}

    def _next(self, person: str) -> int | None:
        """Return the next text for a person, and keep that they have opened it."""
        with self._lock:
            if (opened := self._store.opened(person)) is not None:
                return opened
            is_random = self._store.finished(person) % _TURN == _TURN - 1
            own = self._store.untouched(held_out=True, person=person)  # everyone labels these, to compare
            free = [one for one in self._learner.order if self._store.is_untouched(one)][:1]
            free = free or self._store.untouched(held_out=False)
            others = self._store.untouched(held_out=False, person=person)  # which others have left open
            choices = [*own, *free, *others] if is_random else [*free, *own, *others]
            if not choices:
                return None
            self._store.visit(choices[0], person, OPEN)
            return choices[0]

    def _shown(self, number: int | None, person: str) -> dict[str, Any]:
        stored = None if number is None else self._store.text(number)
        if stored is None:
            return {"text": None, **self._progress()}
        given = self._store.given(stored.id)
        answers = {label: answer for label, (answer, _) in given.items()} | self._store.answers(stored.id, person)
        found = self._learner.suggester.explain(stored.text[:_EXPLAINED], _SUGGESTIONS)
        suggested = {one.name: one for one in reversed(found) if one.name in self._search.labels}
        notes = {label: note for label, (_, note) in given.items() if note}
        labels = [
            {
                "label": name, "score": suggested[name].score if name in suggested else None,
                "words": words_of(suggested[name]) if name in suggested else [], "note": notes.get(name, ""),
                "answer": answers.get(name, 0),
            }
            for name in dict.fromkeys([*notes, *reversed(suggested), *answers])
        ]  # fmt: skip
        return {"text": stored.id, "name": stored.name, "content": stored.text, "labels": labels, **self._progress()}

    def _progress(self) -> dict[str, Any]:
        names = ("text", "beginning", "label", "accepted", "others")
        return {
            "texts": self._store.nr_texts, "finished": self._store.finished(), "learned": self._learner.learned,
            "figures": self._learner.figures, "uris": bool(self._uris),
            "disagreements": [dict(zip(names, row, strict=True)) for row in self._store.disagreements()],
        }  # fmt: skip

    def _csv(self) -> HttpAnswer:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["id", "text", "labels"])
        for name, text, labels in self._store.labelled():
            writer.writerow([safe_cell(cell) for cell in (name, text, json.dumps(labels, ensure_ascii=False))])
        return _download(out.getvalue(), "text/csv", "labels.csv")

    def _jsonl(self) -> HttpAnswer:
        rows = ({"id": name, "text": text, "labels": labels} for name, text, labels in self._store.labelled())
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        return _download("".join(lines), "application/jsonl", "labels.jsonl")

    def _annif(self) -> HttpAnswer:
        """Return Annif's short-text corpus: lines of a text, a tab, and identifiers of its labels."""
        if not self._uris:
            raise InputError("Annif's corpora need identifiers of the labels", fix="start with --vocabulary terms.ttl")
        rows = ((text, [self._uris.get(one) for one in labels]) for _, text, labels in self._store.labelled())
        lines = [f"{text}\t{' '.join(f'<{uri}>' for uri in own if uri)}\n" for text, own in rows]
        return _download("".join(lines), "text/tab-separated-values", "annif.tsv")


def words_of(label: LabelExplanation) -> list[str]:
    """Return the words of the text that speak for a label."""
    best = [(word, amount) for word, amount in deciding_words(label, _WORDS)[0] if amount > 0]
    most = max((amount for _, amount in best), default=0.0)
    return [word for word, amount in best if amount >= _LEAST_PART * most]


def _field(question: dict[str, Any], name: str, kind: type) -> Any:
    value = question.get(name)
    if type(value) is not kind:
        raise RefusedError(400, f"{name} must be {'a text' if kind is str else 'a whole number'}")
    return value


def _download(content: str, kind: str, name: str) -> HttpAnswer:
    headers = (("content-disposition", f'attachment; filename="{name}"'),)
    return HttpAnswer(200, content.encode(errors="replace"), f"{kind}; charset=utf-8", headers)
