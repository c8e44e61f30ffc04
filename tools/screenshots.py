"""Make the pictures of the documentation: ``python -m tools.screenshots [playground] [report] [tensorboard] …``.

Needs Chromium (Debian: ``apt-get install chromium``). Trains a small model on the documentation of installed packages,
which takes a minute; ``--model`` and ``--logdir`` take an export and log files of your own instead.
"""

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from xmc_tf.data import TextFile, load_names
from xmc_tf.demo.corpus import build, write_unlabelled
from xmc_tf.demo.encoder import make_tiny
from xmc_tf.label import LabelPage
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.server.application import Application
from xmc_tf.server.connections import bound_socket, in_background
from xmc_tf.server.labelling.desk import Desk
from xmc_tf.server.labelling.learning import Learner
from xmc_tf.server.labelling.store import LabelStore
from xmc_tf.server.page.answering import Answering
from xmc_tf.server.page.routes import FILES, LIMITS, ON_THIS_MACHINE, page_application

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {
    "playground": ROOT / "docs" / "playground.png",
    "tensorboard": ROOT / "docs/explanation/tensorboard.png",
    "report": ROOT / "docs/how-to/report.png",
    "report-narrow": ROOT / "docs/how-to/report-narrow.png",
    "label": ROOT / "docs/how-to/label.png",
    "label-narrow": ROOT / "docs/how-to/label-narrow.png",
}
WIDTH, LABELLING, NARROW = 1280, 800, 400
TEXT = "Sorts the elements of an array along an axis and returns their indices."
EXAMPLES = [TEXT, "Solves a linear system with a sparse matrix.", "Drops units of a layer at random during training."]
PACKAGES = ["numpy", "scipy", "keras"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# What a person does on the page: enter a text, and open the best label.
_ASK = """
start().then(() => { $('text').value = %s; return ask(); })
  .then(() => { document.querySelector('#labels details').open = true; });
"""


def main(argv: list[str] | None = None) -> int:
    """Make the pictures and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"{', '.join(PICTURES)} (default: all)")
    parser.add_argument("--model", metavar="DIR", help="export for the playground (default: a small one is made)")
    parser.add_argument("--report", metavar="DIR", help="folder of a report (default: of a small training)")
    parser.add_argument("--logdir", metavar="DIR", help="TensorBoard's log files (default: those of a small training)")
    parser.add_argument("--output", metavar="DIR", help="folder for the pictures (default: those of the pages)")
    options = parser.parse_args(argv)
    if unknown := set(options.pictures) - set(PICTURES):
        parser.error(f"no such picture: {', '.join(sorted(unknown))}; expected {', '.join(PICTURES)}")
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        print(f"Chromium is missing (looked for {', '.join(_BROWSERS)})", file=sys.stderr)
        print("  fix: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for name in options.pictures or PICTURES:
            picture = Path(options.output or PICTURES[name].parent, PICTURES[name].name).resolve()
            if name == "playground":
                take_playground(browser, picture, options.model or make_export(Path(folder)))
            elif name.startswith("report"):
                page = Path(options.report or make_report(Path(folder) / "report"), "report.html").resolve()
                narrow = name.endswith("narrow")
                take(browser, picture, page.as_uri(), 1400, width=NARROW if narrow else WIDTH, dark=narrow)
            elif name.startswith("label"):
                take_labelling(browser, picture, Path(folder), narrow=name.endswith("narrow"))
            else:
                take_tensorboard(browser, picture, options.logdir or make_logs(Path(folder)))
            print(picture)
    return 0


def make_export(folder: Path) -> Path:
    """Train linear rankers on the documentation of installed packages, and export them."""
    data = build(folder / "data", PACKAGES)
    inputs = ["-t", data / "X.trn.txt", "-y", data / "Y.trn.npz", "--labels", data / "labels.txt"]
    (folder / "examples.txt").write_text("".join(f"{text}\n" for text in EXAMPLES))
    _command("linear", "train", *inputs, "-m", folder / "model", "--nr-splits", "4", "--max-leaf-size", "24")
    _command("export", "-m", folder / "model", "-o", folder / "served" / "1", "-t", folder / "examples.txt")
    return folder / "served"


def make_report(folder: Path) -> Path:
    """Train linear rankers on the documentation of installed packages, and write a report on them."""
    if (folder / "report.html").exists():  # by the picture before
        return folder
    data = build(folder / "data", PACKAGES)
    inputs = ["-t", data / "X.trn.txt", "-y", data / "Y.trn.npz", "--labels", data / "labels.txt"]
    _command("linear", "train", *inputs, "-m", folder / "model", "--nr-splits", "4", "--max-leaf-size", "24")
    _command("predict", "-m", folder / "model", "-t", data / "X.tst.txt", "-k", "20", "-o", folder / "pred.npz")
    _command(
        "evaluate", "-y", data / "Y.tst.npz", "-p", folder / "pred.npz", "--train-labels", data / "Y.trn.npz",
        "-m", folder / "model", "-t", data / "X.tst.txt", "--title", "Labels of documentation", "--report", folder,
    )  # fmt: skip
    return folder


def make_logs(folder: Path) -> Path:
    """Train a tiny encoder from scratch with log files for TensorBoard."""
    data = build(folder / "data", PACKAGES)
    encoder = make_tiny(folder / "encoder", TextFile(data / "X.trn.txt"), length=64)
    inputs = ["-t", data / "X.trn.txt", "-y", data / "Y.trn.npz", "--labels", data / "labels.txt"]
    held_out = ["-tt", data / "X.tst.txt", "-yt", data / "Y.tst.npz"]
    options = ["--truncate-length", "64", "--save-steps", "50", "--logdir", folder / "runs"]
    _command("train", *inputs, *held_out, "-m", folder / "tuned", "--model-shortcut", encoder, *options)
    return folder / "runs"


def _command(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "xmc_tf", *map(str, words)], check=True)


def take_playground(browser: str, picture: Path, export: str | Path) -> None:
    """Take a picture of the page after a text was entered."""
    kind, script = FILES["/page.js"]
    FILES["/page.js"] = (kind, script + _ASK % json.dumps(TEXT))
    try:
        # The page shows the folder as it was given: a name, not the whole path.
        page = page_application(Answering(Path(export).name))
        with contextlib.chdir(Path(export).parent), in_background(page, bound_socket("127.0.0.1", 0)) as url:
            take(browser, picture, f"{url}/", height=1000)
    finally:
        FILES["/page.js"] = (kind, script)


def take_labelling(browser: str, picture: Path, folder: Path, *, narrow: bool) -> None:
    """Take a picture of the page to label texts, after some texts have got the suggestions that they contain."""
    texts, names = write_unlabelled(folder / "unlabelled", PACKAGES)
    lines = load_names(names)
    model = XRLinear.train(TextFile(texts), names=lines)
    store = LabelStore.open(folder / f"{picture.stem}.sqlite")
    own = list(TextFile(texts))
    store.add_texts([str(number) for number in range(1, len(own) + 1)], own, [False] * len(own))
    learner = Learner(model, store, lines)
    desk = Desk(store, learner, lines)
    with in_background(
        Application(LabelPage(desk, learner, ON_THIS_MACHINE), LIMITS), bound_socket("127.0.0.1", 0)
    ) as url:
        shown = desk.posts["/text"]({"person": "me"})
        for number in range(151):
            here = {"person": "me", "text": shown["text"]}
            for one in shown["labels"]:
                if one["label"] in shown["content"].lower().split():
                    desk.posts["/answer"]({**here, "label": one["label"], "answer": 1})
            if number < 150:
                shown = desk.posts["/finish"](here)
        learner.update()
        take(browser, picture, f"{url}/", height=830, width=NARROW if narrow else LABELLING, dark=narrow)
    store.close()


def take_tensorboard(browser: str, picture: Path, logdir: str | Path) -> None:
    """Take a picture of TensorBoard's curves."""
    with tensorboard(logdir) as url:
        take(browser, picture, f"{url}?darkMode=false&tagFilter=level_1#timeseries", height=950, wait_ms=30_000)


@contextlib.contextmanager
def tensorboard(logdir: str | Path) -> Iterator[str]:
    """Run a TensorBoard, and yield its address when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", str(port)]
    process = subprocess.Popen([*command, "--load_fast=false"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"{url}data/runs", timeout=30) as answer:
                    if json.load(answer):
                        break
            except OSError:
                pass
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def take(
    browser: str,
    picture: Path,
    url: str,
    height: int,
    wait_ms: int = 10_000,
    *,
    width: int = WIDTH,
    dark: bool = False,
) -> None:
    """Take a picture of a page with the browser's own command line.

    Args:
        browser: the program.
        picture: the .png to write.
        url: the page.
        height: of the picture, in pixels.
        wait_ms: milliseconds that the page has, by its own clock, for its scripts.
        width: of the picture, in pixels.
        dark: whether pages are asked for their dark colours.
    """
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
            f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--virtual-time-budget={wait_ms}",
            f"--screenshot={picture}", *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        ]  # fmt: skip
        picture.unlink(missing_ok=True)
        done = subprocess.run([browser, *flags, url], capture_output=True, text=True, timeout=180, check=False)
    if not picture.is_file():
        raise OSError(f"{browser} wrote no picture of {url}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
