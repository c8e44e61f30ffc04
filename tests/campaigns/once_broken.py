"""The part of the bad-input campaign with command lines that once ended in a traceback, or not at all."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from tests.campaigns.table_commands import TABLES, arguments
from tests.campaigns.trial import Case

_READERS = ("prepare", "predict", "report.audit", "evaluate", "sequences.prepare")  # of a table, or of a file like it
_NO_TEXT_ENCODINGS = ("rot13", "zlib", "hex", "idna", "punycode", "undefined", "unicode_escape", "utf-7", "mbcs")
_SERVERS = ("http://a\x1b[31m\nb", "http://\x00", "http://caf\udce9/v1", "ftp://a", "http://[::1", "http://:99999999")
_PARTS = [
    "features/idf.npy", "features/keys.npy", "features/vocabulary.txt", "fusion/documents.npy", "fusion/fusion.json",
    "label_names/names.npz", "labels.txt", "params.json", "ranker/ranker/0.model/C.npz", "ranker/ranker/0.model/W.npz",
    "ranker/param.json", "tree/C0.npz", "tree/config.json",
]  # fmt: skip
_SEQUENCES = (
    ("--config", "{out}/deep.toml"),
    ("--set", "data_dir={in}/sequences", "--set", "model_dir={out}/m", "--set", "logdir={in}/X.txt"),
    ("--set", "data_dir={in}/sequences", "--set", "model_dir={out}/m", "--set", "threads=0"),
    ("--set", "data_dir={in}/sequences", "--set", "model_dir={in}/sequences"),
    ("--set", "data_dir={in}/sequences", "--set", "model_dir={out}/closed/m"),
    ("--set", "data_dir={in}/text-model", "--set", "model_dir={out}/m"),
)


def cases() -> Iterator[Case]:
    """Return all of them; a campaign begins with these."""
    for encoding in _NO_TEXT_ENCODINGS:
        yield Case("prepare", arguments("prepare", "--encoding", encoding))
    for command in ("predict", "sequences.prepare"):
        yield Case(command, arguments(command, "--encoding", "zlib"))
    for server in _SERVERS:
        yield Case("predict", ("{in}/data.csv", "--server", server, "-o", "{out}/labels.csv"))
    yield Case("predict", ("-q", "word1", "--server", "ftp://a"))
    yield from _rows_without_an_end()
    yield from _full_disks()
    yield from _closed_folders()
    yield from _files_of_others()
    yield from _odd_places()
    for part, kind in itertools.product(_PARTS, ("empty", "half", "one byte flipped", "a folder")):
        bad = ((f"model/{part}", kind, f"text-model/{part}"),)
        yield Case("predict", ("-m", "{out}/model", "-q", "word1 word2"), bad, model="text-model")
        if kind == "half":
            yield Case("explain", ("-m", "{out}/model", "word1 word2"), bad, model="text-model")
    yield Case("labels.remove", ("{in}/lines/many names", "-m", "{in}/kept-model", "-o", "{out}/new"))
    for command in _READERS:
        yield Case(command, arguments(command, "-o", "{out}/a\x1b[31mb\n.npz"))
    for value in ("nan", "inf", "-inf", "1e400"):
        yield Case("predict", ("-m", "{in}/text-model", "-q", "word1", "--threshold", value))
    for argv in _SEQUENCES:
        yield Case("sequences.train", argv, (("deep.toml", "deep TOML", "X.txt"),))


def _rows_without_an_end() -> Iterator[Case]:
    for kind in ("an endless view", "gzip that unfolds", "a stray byte", "one long line"):
        bad = (("table", kind, "data.csv"),)
        for command in _READERS:
            yield Case(command, arguments(command, "", "{out}/table"), bad)
        yield Case("runs", ("{out}/table",), bad)
        yield Case("append", ("{out}/table", "-m", "{in}/kept-model", "-o", "{out}/new"), bad, model="kept-model")
        yield Case("train", ("{out}/table", "-m", "{out}/m", "--effort", "fast"), bad)


def _full_disks() -> Iterator[Case]:
    """Outputs for which the disk has no room, or that the limit for files does not allow."""
    kept = ("-m", "{in}/kept-model", "-o", "{out}/disk/new")
    outputs = [
        Case("linear.train", ("-x", "{in}/X.npz", "-y", "{in}/Y.npz", "-m", "{out}/disk/new")),
        Case("linear.predict", ("-m", "{in}/model", "-x", "{in}/X.npz", "-o", "{out}/disk/p.npz")),
        Case("train", ("{in}/data.csv", "-m", "{out}/disk/new", "--effort", "fast", "--data-set", "{out}/disk/d")),
        Case("append", ("{in}/more.csv", *kept, "--label-separator", "|")),
        Case("labels.add", ("{in}/new-names.txt", *kept)),
        Case("labels.merge", ("{in}/groups.txt", *kept)),
        *(Case(command, arguments(command, flag, f"{{out}}/disk/{name}")) for command, flag, name in _WRITERS),
    ]
    of_report = ("{out}/data.sqlite", "-m", "{out}/model", "-o", "{out}/disk/report")
    for bytes_ in (1 << 12, 1 << 16):
        for case in outputs:
            yield Case(case.command, case.argv, room=bytes_)
            yield Case(case.command, case.argv, largest_file=bytes_)
        bad = (("data.sqlite", "as it is", "data.sqlite"),)
        # It also fills the card of the model. The model is copied to a disk as well, which has to have room for it.
        yield Case("report.command", of_report, bad, model="text-model", replaces=True, room=(1 << 18) + bytes_)
        yield Case("report.command", of_report, bad, model="text-model", replaces=True, largest_file=bytes_)
    # Their model is the disk itself, which no other folder can replace.
    for argv in (
        ("{in}/more.csv", "-m", "{out}/disk", "--label-separator", "|"),
        ("{in}/more.csv", "-m", "{out}/disk"),
    ):
        yield Case("append", argv, model="kept-model", room=1 << 24)


_WRITERS = [
    ("prepare", "-o", "new.sqlite"),
    ("predict", "-o", "labels.csv"),
    ("report.audit", "-o", "audit"),
    ("evaluate", "--report", "report"),
    ("sequences.prepare", "-o", "new"),
]


def _closed_folders() -> Iterator[Case]:
    """Data sets and models in a folder that cannot be written to, and results for it."""
    inside = (("closed/data.sqlite", "as it is", "data.sqlite"),)
    given = "{out}/closed/data.sqlite"
    yield Case("runs", (given,), inside)
    yield Case("runs", (given, "show", "1"), inside)
    yield Case("runs", (given, "delete", "1"), inside)
    of_report = (given, "-m", "{out}/model", "-o", "{out}/report")
    yield Case("report.command", of_report, inside, model="text-model", replaces=True)
    yield Case("train", (given, "-m", "{out}/m", "--effort", "fast"), inside)
    yield Case("train", ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/closed/d", "--effort", "fast"))
    yield Case("train", ("{in}/data.csv", "-m", "{out}/closed/m", "--effort", "fast"))
    yield Case("predict", (given, "-m", "{in}/text-model", "-o", "{out}/closed/labels.csv"), inside)
    for command, one in TABLES.items():
        for flag in ("-o", "--report"):
            if flag in one.base:
                yield Case(command, arguments(command, flag, "{out}/closed/new"), **one.case)


_NAMES_LIKE_OURS = (
    (".m.lock", "text", "X.txt"), (".m.work.lock", "text", "X.txt"), (".m.new-20240101.csv", "text", "X.txt"),
    (".m.new-pictures", "a folder", "X.txt"), (".m.rankers", "a folder", "X.txt"),
)  # fmt: skip


def _files_of_others() -> Iterator[Case]:
    """Outputs whose names others have, and files of others beside a model, with names like temporary ones of ours."""
    of_texts = ("-m", "{in}/text-model", "-t", "{in}/X.txt", "-o")
    for name, kind, good in (("Y.npz", "as it is", "Y.npz"), ("mine.jsonl", "text", "X.txt")):
        yield Case("predict", (*of_texts, f"{{out}}/{name}"), ((name, kind, good),))
    for command, flag in (("predict", "-o"), ("report.audit", "-o"), ("evaluate", "--report")):
        yield Case(command, arguments(command, flag, "{out}/mine.csv"), (("mine.csv", "as it is", "data.csv"),))
    yield Case(
        "runs", ("{in}/data.sqlite", "predictions", "1", "-o", "{out}/mine.csv"), (("mine.csv", "text", "X.txt"),)
    )
    table = ("{in}/data.csv", "-m", "{out}/m", "--effort", "fast", "--data-set", "{out}/d")
    yield Case("train", table, _NAMES_LIKE_OURS)
    yield Case("train", (*table, "--report", "{out}/mine.csv"), (("mine.csv", "text", "X.txt"),))
    yield Case("linear.train", ("-x", "{in}/X.npz", "-y", "{in}/Y.npz", "-m", "{out}/m"), _NAMES_LIKE_OURS)


def _odd_places() -> Iterator[Case]:
    """Links that lead to themselves, the current folder as a model, and numbers that are too large for a clock."""
    loop = (("loop", "a circle of links", "X.txt"),)
    for command, flag in (
        ("predict", "-m"), ("predict", "-o"), ("predict", ""), ("prepare", "-o"), ("report.audit", "-o"),
        ("evaluate", "--report"), ("sequences.prepare", ""), ("sequences.prepare", "-o"),
    ):  # fmt: skip
        for path in ("{out}/loop", "{out}/loop/new"):
            yield Case(command, arguments(command, flag, path), loop)
    yield Case("sequences.prepare", ("{out}/loo*", "-o", "{out}/new"), loop)
    for model in ("{out}/loop", "."):
        yield Case("linear.train", ("-x", "{in}/X.npz", "-y", "{in}/Y.npz", "-m", model), loop)
    yield Case("check", ("--megabytes", "1e30"))
    yield Case("train", ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--split-seed", str(1 << 70)))


def make_inputs(folder: Path) -> None:
    """Create a list of names that is long, and prepared sequences.

    Args:
        folder: folder with the other inputs.
    """
    from xmc_tf.sequences import prepare

    (folder / "lines" / "many names").write_text("".join(f"name {number}\n" for number in range(200_000)))
    prepare.main([str(folder / "interactions.csv"), "-o", str(folder / "sequences"), "--verbose-level", "0"])
