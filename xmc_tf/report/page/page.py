"""The page as HTML without external resources, from the templates beside this file."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from xmc_tf.report.page import labels, overview
from xmc_tf.report.page.elements import clean, name, percent, thousands
from xmc_tf.report.report import Report

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = Markup('<meta name="generator" content="xmc_tf">')
_TEMPLATES = Path(__file__).with_name("templates")
_TITLE_LENGTH = 300


def to_html(report: Report) -> str:
    comparison = report.comparison
    about = (
        f"{comparison.documents:,} documents, {comparison.labels:,} labels, "
        f"{comparison.labels_per_document:.2f} labels per document"
    )
    beside = f"report.json, {labels.LABELS_FILE}, thresholds.csv and {labels.CONFUSIONS_FILE}"
    content = {"report": report, "overview": overview, "labels": labels}
    return render("report.html", report.inputs.title, about, beside, **content)


def render(template: str, title: str, about: str, beside: str, **content: Any) -> str:
    """Return a page with links to its sections. ``beside`` names the files that contain the data of the page."""
    environment, script = _environment(), _file("sort.js")
    body = environment.get_template(template).render(content)
    return environment.get_template("page.html").render(
        title=clean(title, _TITLE_LENGTH), about=clean(about, _TITLE_LENGTH), body=Markup(body), beside=beside,
        contents=re.findall(r'<h2 id="([a-z]+)-title">([^<]*)</h2>', body), generator=GENERATOR,
        style=_file("style.css"), script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def _file(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


@cache
def _environment() -> "Environment":
    """Return the environment of the templates, which escape every text that is not Markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # commands without a report start sooner

    out = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    out.filters |= {
        "name": name, "percent": percent, "px": "{:.1f}".format, "shown": clean, "thousands": thousands,
    }  # fmt: skip
    return out
