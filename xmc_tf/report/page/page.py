import base64
import hashlib
import re

from xmc_tf.report.page import labels, overview
from xmc_tf.report.page.assets import SCRIPT, STYLE
from xmc_tf.report.page.elements import Html, text
from xmc_tf.report.report import Report

_SECTIONS = (
    overview.overview, overview.thresholds, overview.metrics, labels.labels, labels.confusion, labels.examples,
    overview.calibration, labels.coverage, overview.learning, overview.settings,
)  # fmt: skip
GENERATOR = '<meta name="generator" content="xmc_tf">'
_TITLE_LENGTH = 300


def to_html(report: Report) -> Html:
    body = "\n".join(filter(None, (part(report) for part in _SECTIONS)))
    comparison = report.comparison
    about = (
        f"{comparison.documents:,} documents, {comparison.labels:,} labels, "
        f"{comparison.labels_per_document:.2f} labels per document"
    )
    beside = f"report.json, {labels.LABELS_FILE}, thresholds.csv and {labels.CONFUSIONS_FILE}"
    return whole_page(report.inputs.title, about, body, beside)


def whole_page(title: str, about: str, body: Html, beside: str) -> Html:
    """Return a page with links to its sections. ``beside`` names the files that contain the data of the page."""
    found = re.findall(r'<h2 id="([a-z]+)-title">([^<]*)</h2>', body)
    contents = "".join(f'<li><a href="#{identifier}">{heading}</a></li>' for identifier, heading in found)
    title = text(title, _TITLE_LENGTH)
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    # Whatever a text contains, nothing is loaded, and no other script runs.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{GENERATOR}
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#summary">Skip to the summary</a>
<div class="layout">
<header>
<h1><bdi>{title}</bdi></h1>
<p>{about}</p>
</header>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
<main>
{body}
</main>
<footer>Made by xmc_tf. The data of this page are also in the files beside it: {beside}.</footer>
</div>
<script>{SCRIPT}</script>
</body>
</html>
"""
