"""The backend in real Annif: its commands, REST interface and web page, an ensemble, excluded and removed subjects."""

import json
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.annif_backend.environment import ROOT, annif_environment, annif_variables
from tests.serving import browser

pytestmark = [pytest.mark.distributed, pytest.mark.full]  # it starts processes that take all cores

_NAMES = {
    "bread": ("loaf", "rye"),
    "herbs": ("basil", "thyme"),
    "gardens": ("lawn", "greenhouse"),
    "sauces": ("gravy", "pesto"),
    "cats": ("feline", "kitten"),
    "music": ("melody", "song"),
}
# Each project has these settings, and its own.
_EVERY = {"language": "en", "backend": "xmc_tf", "vocab": "v"}
_SMALL = {"min_df": 1, "effort": "fast"}
_STEMS = {"analyzer": "snowball(english)"}
_PROJECTS = {
    "ours": {"limit": 10, "min_df": 1},
    "without-cats": {"vocab": "v(exclude=http://example.org/cats)", **_SMALL},
    "learns": {"limit": 10, "allow_learn": True, **_SMALL},
    "stems": {"probabilities": "false", "allow_learn": True, **_STEMS, **_SMALL},
    "words": {"backend": "tfidf", "analyzer": "simple", "limit": 10},
    "both": {"backend": "ensemble", "sources": "ours:2,words:1"},
    "encoded": {
        "limit": 10, "encoder": "encoder", "epochs": 1, "truncate_length": 16, "allow_learn": True, **_SMALL
    },
    "no-encoder": {"encoder": "./nowhere"},
    "stems-of-an-encoder": {"encoder": "encoder", **_STEMS},
    "wrong": {"effort": "slow"},
}  # fmt: skip


def _configuration():
    lines = []
    for project, own in _PROJECTS.items():
        lines += [f"[{project}]", f"name={project.replace('-', ' ').capitalize()}"]
        lines += [f"{key}={value}" for key, value in {**_EVERY, **own}.items()]
    return "\n".join(lines) + "\n"


def _turtle():
    lines = ["@prefix skos: <http://www.w3.org/2004/02/skos/core#> ."]
    for name, others in {**_NAMES, "volcanoes": ("lava", "magma")}.items():
        concept = f'<http://example.org/{name}> a skos:Concept ; skos:prefLabel "{name}"@en'
        lines.append(f'{concept} ; skos:altLabel "{others[0]}"@en ; skos:hiddenLabel "{others[1]}"@en .')
    return "\n".join(lines) + "\n"


def _corpus():
    lines = []
    for turn in range(12):
        for name, (alternative, hidden) in _NAMES.items():
            word = (name, alternative, hidden)[turn % 3]
            lines.append(f"A {word} on day {turn}, and more of it\t<http://example.org/{name}>")
    lines.append("nothing is known about this\t")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def annif(tmp_path_factory):
    """Return a function that runs Annif's command in a folder with projects, and its environment."""
    environment, folder = annif_environment(), tmp_path_factory.mktemp("annif")
    (folder / "projects.cfg").write_text(_configuration())
    (folder / "v.ttl").write_text(_turtle())
    (folder / "train.tsv").write_text(_corpus())
    variables = annif_variables(folder)

    def in_process(*command):
        made = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout

    in_process(environment / "bin" / "annif", "load-vocab", "v", "v.ttl")
    python = environment / "bin" / "python"
    server = subprocess.Popen(
        [python, ROOT / "tests/annif_backend/commands.py"], env=variables, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def run(*arguments, text="", status=0):
        files = [folder / name for name in ("stdin", "stdout", "stderr")]
        for file, content in zip(files, (text, "", ""), strict=True):
            file.write_text(content)
        print(json.dumps([arguments, list(map(str, files))]), file=server.stdin, flush=True)
        ended, output, errors = int(server.stdout.readline()), files[1].read_text(), files[2].read_text()
        assert ended == status, output + errors
        return output if status == 0 else errors

    run("train", "ours", "train.tsv")
    run.folder, run.command, run.variables = folder, environment / "bin" / "annif", variables
    run.ask = lambda *words: json.loads(in_process(python, ROOT / "tests/annif_backend/conversation.py", *words))
    yield run
    server.stdin.close()
    server.wait(60)
    server.stdout.close()


def _first(suggestions):
    """Return name and score of the first line that ``annif suggest`` printed."""
    uri, name, score = suggestions.splitlines()[0].split("\t")
    assert uri == f"<http://example.org/{name}>"
    return name, float(score)


def test_commands(annif):
    for text, name in (("my thyme", "herbs"), ("a new song", "music"), ("lava of a mountain", "volcanoes")):
        found, score = _first(annif("suggest", "ours", text=text))
        assert found == name  # volcanoes have no training documents
        assert 0 < score <= 1
    measured = annif("eval", "ours", "train.tsv")
    assert float(measured.split("NDCG:")[1].split()[0]) > 0.9
    assert annif("suggest", "ours", text="j") == ""
    before = annif("suggest", "ours", text="basil and gravy")
    annif("train", "--cached", "--jobs", "1", "ours")
    assert annif("suggest", "ours", text="basil and gravy") == before


def test_only_some_subjects_are_suggested(annif):
    """Annif's issue 845: a choice of subjects for one command, by URI or by name."""
    for line, found in (("<http://example.org/cats>", "cats"), ("sauces", "sauces")):
        (annif.folder / "chosen.txt").write_text(f"{line}\n")
        flags = ["-b", "xmc_tf.only_labels=chosen.txt"]
        shown = annif("suggest", *flags, "ours", text="basil and gravy for a kitten")
        assert [row.split("\t")[1] for row in shown.splitlines()] == [found]
    (annif.folder / "chosen.txt").write_text("unknown\n")
    assert "chosen.txt, line 1: not a subject" in annif("suggest", *flags, "ours", text="gravy", status=1)


def test_learning_documents_and_a_subject_that_the_vocabulary_has_gained(annif):
    more = _turtle().replace("volcanoes", "glaciers").replace("lava", "crevasse").splitlines()[-1]
    (annif.folder / "more.ttl").write_text(_turtle() + more + "\n")
    uris = [f"<http://example.org/{name}>" for name in ("glaciers", "music")]
    (annif.folder / "new.tsv").write_text(f"a crevasse on day 3\t{uris[0]}\nan opera of day 4\t{uris[1]}\n")
    annif("train", "-b", "xmc_tf.cluster_k=5", "learns", "train.tsv")
    assert "cluster_k is not a setting and has no effect" in (annif.folder / "stderr").read_text()
    annif("load-vocab", "v", "more.ttl")
    annif("learn", "learns", "new.tsv")
    assert _first(annif("suggest", "learns", text="the crevasse"))[0] == "glaciers"
    assert _first(annif("suggest", "learns", text="my thyme"))[0] == "herbs"


def test_rest_interface_ensemble_and_no_tensorflow(annif):
    annif("train", "words", "train.tsv")
    answers = annif.ask("both", "kitten", "greenhouse")
    assert answers["project"]["is_trained"]
    labels = [one["results"][0]["label"] for one in answers["suggestions"]]
    assert labels == [one["results"][0]["label"] for one in answers["batch"]] == ["cats", "gardens"]
    assert "tensorflow" not in answers["loaded"]


def test_an_analyzer_normalizes_texts_and_names(annif):
    annif("train", "stems", "train.tsv")
    # No word of this text is in a training document, and its names are no evidence here.
    assert _first(annif("suggest", "stems", text="Gardener"))[0] == "gardens"
    names = (annif.folder / "data/projects/stems/xmc_tf-model/labels.txt").read_text().split("\n")
    assert {"garden", "sauc"} < set(names)
    assert not (annif.folder / "data/projects/stems/xmc_tf-model/fusion").exists()
    assert (annif.folder / "data/projects/ours/xmc_tf-model/fusion").exists()
    before = annif("suggest", "stems", text="kitten")
    (annif.folder / "kittens.tsv").write_text("Kittens\t<http://example.org/music>\n" * 9)
    annif("learn", "stems", "kittens.tsv")
    assert _first(before)[0] == "cats"
    assert _first(annif("suggest", "stems", text="kitten"))[0] == "music"


def test_an_encoder_is_fine_tuned_in_annifs_environment(annif):
    pytest.importorskip("tensorflow")  # of this environment, to make a tiny encoder
    from xmc_tf.demo.encoder import make_tiny

    make_tiny(annif.folder / "encoder", _corpus().split(), 32, hidden_size=16, intermediate_size=32)
    annif("train", "encoded", "train.tsv")
    project = annif.folder / "data/projects/encoded"
    assert (project / "xmc_tf-model/encoder/config.json").is_file()
    assert not (project / "xmc_tf-train-work").exists()
    assert _first(annif("suggest", "encoded", text="my thyme"))[0] == "herbs"
    measured = annif("eval", "--jobs", "2", "encoded", "train.tsv")
    assert float(measured.split("NDCG:")[1].split()[0]) > 0.9
    answers = annif.ask("encoded", "kitten", "greenhouse")
    assert [one["results"][0]["label"] for one in answers["batch"]] == ["cats", "gardens"]
    assert "tensorflow" in answers["loaded"]
    assert "cannot learn" in annif("learn", "encoded", "train.tsv", status=1)
    assert "nowhere is not a folder" in annif("train", "no-encoder", "train.tsv", status=1)
    assert "leave one of them out" in annif("train", "stems-of-an-encoder", "train.tsv", status=1)


def test_excluded_subjects_are_not_suggested(annif):
    annif("train", "without-cats", "train.tsv")
    found = annif("suggest", "without-cats", text="a kitten and a song")
    assert "music" in found
    assert "cats" not in found


def test_errors_are_annifs_own(annif):
    assert "effort" in annif("train", "wrong", "train.tsv", status=1)
    (annif.folder / "empty.tsv").write_text("nothing is known about this\t\n")
    assert "no document has both text and subjects" in annif("train", "wrong", "empty.tsv", status=1)
    assert "not trained" in annif("suggest", "wrong", text="a song", status=1)


@contextmanager
def _server(annif, tmp_path):
    """Yield the address of ``annif run``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        command = [annif.command, "run", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, env=annif.variables, cwd=annif.folder, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
                break
            except ConnectionRefusedError:
                said = (tmp_path / "log").read_text()
                assert process.poll() is None, said
                assert time.monotonic() < end, said
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.usefixtures("chromium")
def test_the_web_page_shows_the_suggestions(annif, tmp_path):
    name, score = _first(annif("suggest", "ours", text="my thyme and a basil"))
    with _server(annif, tmp_path) as address, browser.page(tmp_path / "chromium") as page:
        page.open(address)
        page.until("document.querySelectorAll('#project option').length === 10")
        page.js(
            "const chosen = document.querySelector('#project'); chosen.value = 'ours';"
            "chosen.dispatchEvent(new Event('input'))"
        )
        page.js("document.querySelector('#text').focus()")
        page.write("my thyme and a basil")
        page.js("document.querySelector('#get-suggestions').click()")
        page.until("document.querySelector('#results li')")
        first = page.js("document.querySelector('#results li').innerText").strip()
        uri = page.js("document.querySelector('#results a').href")
        shown = page.js("document.querySelector('#results meter').value")
    assert (first, uri) == (name, f"http://example.org/{name}")
    assert shown == pytest.approx(score, abs=1e-3)
