"""The part of the bad-input campaign about models that change: documents appended, labels added, merged, removed."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.campaigns.hostile import FILES, NAMES, NUMBERS
from tests.campaigns.trial import Case, argv_of

BASE = {
    "append": {"": "{in}/more.csv", "-m": "{in}/kept-model", "-o": "{out}/new", "--label-separator": "|"},
    "labels.add": {"": "{in}/new-names.txt", "-m": "{in}/kept-model", "-o": "{out}/new"},
    "labels.remove": {"": "{in}/some-names.txt", "-m": "{in}/kept-model", "-o": "{out}/new"},
    "labels.merge": {"": "{in}/groups.txt", "-m": "{in}/kept-model", "-o": "{out}/new"},
}
_TEXTS = {"-t": "{in}/X.txt", "-y": "{in}/Y.npz", "-m": "{in}/kept-model", "-o": "{out}/new"}
_GOOD = {"append": "more.csv", "labels.add": "new-names.txt", "labels.remove": "some-names.txt",
         "labels.merge": "groups.txt"}  # fmt: skip
# Models of other kinds: without texts, without training data, without names as evidence; and paths that are not models.
_MODELS = ("{in}/model", "{in}/text-model", "{in}/plain-model", "{in}", "{in}/nothing", "{in}/X.npz")
_PARTS = [
    "params.json", "labels.txt", "training/X.npz", "training/Y.npz", "features/idf.npy", "fusion/fusion.json",
    "label_names/names.npz", "ranker/ranker/2.model/W.npz", "tree/C2.npz",
]  # fmt: skip
_OUTPUTS = ("{in}", "{in}/kept-model/tree", "{in}/X.npz", "{out}/closed/new", "/proc/new", "{out}/device")
_FINDINGS = "findings.csv"
_LINES = {
    "findings without their columns": "accept,kind\nyes,missing\n",
    "findings of other rows": "accept,kind,row,label\nyes,missing,99999,label 1\nyes,wrong,-1,label 1\n",
    "findings of no labels": "accept,kind,row,label\nyes,missing,1,dogs\nyes,no such kind,x,label 1\n",
    "unknown names": "dogs\nno such label\n",
    "one name twice": "library 1\nlibrary 1\n",
    "every name": "".join(f"{name} {i}\n" for i in (1, 2) for name in
                          ("library", "kitchen", "harbour", "forest", "theatre", "station")),
    "groups of one": "library 1\nkitchen 1\n",
    "groups that overlap": "library 1\tkitchen 1\nkitchen 1\tforest 1\n",
    "empty fields": "\t\t\n\t\nlibrary 1\t\n",
    "blank lines": "\n\n\n",
    "a table without labels": "text,label\nwords,\nmore words,\n",
    "a table with unknown labels": "text,label\nwords,dogs\n",
    "a table with other columns": "a,b\n1,2\n",
    "a table with one column": "text\nwords\n",
    "Latin-1": "text,label\ncaf\udce9,library 1\n",
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Commands that change a model, with bad files, models and folders; half of them would replace their model."""
    for command, name in _GOOD.items():
        for kind in FILES:
            file = name if kind != "missing" else f"no-{name}"
            yield _case(command, {"": f"{{out}}/{file}"}, (file, kind, name))
        for value in NAMES:
            yield _case(command, {"": value})
            yield _case(command, {"-o": value})
            yield _case(command, {"-m": value})
        for value in (*_MODELS, "{out}/closed/model"):
            yield _case(command, {"-m": value})
        for value in _OUTPUTS:
            yield _case(command, {"-o": value})
        for file in _LINES:
            yield _case(command, {"": f"{{in}}/lines/{file}"})
            yield _in_place(command, f"{{in}}/lines/{file}")
        yield _in_place(command, f"{{in}}/{name}")
        closed = {flag: value for flag, value in BASE[command].items() if flag != "-o"} | {"-m": "{out}/closed/model"}
        yield Case(command, argv_of(closed), model="kept-model")
    for part, kind in itertools.product(_PARTS, FILES):
        yield _in_place("append", "{in}/more.csv", (f"model/{part}", kind, f"kept-model/{part}"))
    for flag, kind in itertools.product(("-t", "-y"), FILES):
        name = "X.txt" if flag == "-t" else "Y.npz"
        yield Case("append", argv_of(_TEXTS | {flag: f"{{out}}/{name}"}), ((name, kind, name),))
    for flag, value in itertools.product(("-n", "--label-separator", "--label-column", "--encoding"), NUMBERS):
        yield _case("append", {flag: value})
    for kind in FILES:
        yield _corrected(f"{{out}}/{_FINDINGS}", (_FINDINGS, kind, f"audit/{_FINDINGS}"))
        yield _corrected(f"{{in}}/audit/{_FINDINGS}", ("known.csv", kind, "known.csv"), table="{out}/known.csv")
    for value in (*NAMES, *(f"{{in}}/lines/{file}" for file in _LINES)):
        yield _corrected(value)


def _case(command: str, changes: dict[str, str], *bad: tuple[str, str, str]) -> Case:
    return Case(command, argv_of(BASE[command] | changes), bad, model="kept-model")


def _corrected(accepted: str, *bad: tuple[str, str, str], table: str = "{in}/known.csv") -> Case:
    """Return a command that corrects the labels of training documents."""
    flags = BASE["append"] | {"": table, "--accepted": accepted}
    return Case("append", argv_of(flags), bad)


def _in_place(command: str, given: str, *bad: tuple[str, str, str]) -> Case:
    """Return a command that replaces its model, if it succeeds; ``labels add`` always writes another one."""
    flags = BASE[command] | {"": given, "-m": "{out}/model"}
    if command != "labels.add":
        del flags["-o"]
    return Case(command, argv_of(flags), bad, model="kept-model", replaces=command != "labels.add")


def make_inputs(folder: Path) -> None:
    """Create a model that keeps its training data, one without names as evidence, findings, and lists of names.

    Args:
        folder: folder with the corpus.
    """
    from tests.linear.command_data import run_train

    trained = ["-t", folder / "X.txt", "-y", folder / "Y.npz", "--labels", folder / "labels.txt", "--max-leaf-size", 4,
               "--nr-splits", 2, "--verbose-level", 0]  # fmt: skip
    run_train(*trained, "-m", folder / "kept-model", "--label-names", "true", "--keep-training-data")
    run_train(*trained, "-m", folder / "plain-model", "--keep-training-data")
    (folder / "more.csv").write_text(
        'text,label\n"word1 library libraries",library 1|kitchen 2\n"word2 forest",forest 1\n'
    )
    (folder / "new-names.txt").write_text("castle\ncinema\tmovie theatre\n")
    (folder / "some-names.txt").write_text("library 1\nkitchen 2\n")
    (folder / "groups.txt").write_text("library 1\tlibrary 2\nkitchen 1\tkitchen 2\n")
    _make_findings(folder)
    (folder / "lines").mkdir()
    for name, content in _LINES.items():
        (folder / "lines" / name).write_text(content, errors="surrogateescape")


def _make_findings(folder: Path) -> None:
    """Audit the documents of the model, and accept all that is found."""
    from xmc_tf.data import load_matrix
    from xmc_tf.report import audit

    names = (folder / "labels.txt").read_text().splitlines()
    texts = (folder / "X.txt").read_text().splitlines()
    rows = [
        f"{text},{'|'.join(names[label] for label in row.indices)}\n"
        for text, row in zip(texts, load_matrix(folder / "Y.npz"), strict=True)
    ]
    (folder / "known.csv").write_text("text,label\n" + "".join(rows))
    flags = ["-m", folder / "kept-model", "-o", folder / "audit", "--label-separator", "|", "--verbose-level", 0]
    audit.main([str(one) for one in (folder / "known.csv", *flags)])
    findings = folder / "audit" / _FINDINGS
    findings.write_text(re.sub("(?m)^,(missing|wrong),", r"yes,\1,", findings.read_text()))
