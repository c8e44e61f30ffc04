"""Draw the comparison with libpecos as the picture of docs/reference/benchmarks.md.

    python -m benchmarks.rankers_vs_pecos … > figures.jsonl
    python -m benchmarks.draw figures.jsonl docs/reference/rankers.svg

Takes the first line of each kind: ``rankers_vs_pecos`` without dense features, and with them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

_WIDTH, _ROW, _LEFT, _BAR = 760, 46, 290, 310
_OURS, _PEER, _TEXT = "#1a7f64", "#b8bec6", "#30363d"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="lines of JSON")
    parser.add_argument("picture", type=Path, help="the .svg to write")
    a = parser.parse_args()
    lines = [json.loads(line) for line in a.figures.read_text().splitlines() if line.startswith("{")]
    rankers = [line for line in lines if line["figure"] == "rankers_vs_pecos"]
    sparse = next(line for line in rankers if not line["dense"])
    dense = next((line for line in rankers if line["dense"]), None)
    a.picture.write_text(_picture(sparse, dense), encoding="utf-8")


def _picture(sparse: dict[str, Any], dense: dict[str, Any] | None) -> str:
    rows = [
        (f"training, {sparse['threads']} threads", sparse, "train_s", "{:.1f} s"),
        ("a query in a batch, 1 thread", sparse, "batch_ms_per_query", "{:.3f} ms"),
        ("one query at a time, median", sparse, "one_query_p50_ms", "{:.3f} ms"),
        ("peak memory of training", sparse, "train_peak_mb", "{:.0f} MB"),
    ]
    if dense:
        rows.append((f"training, {dense['dense']} dense features too", dense, "train_s", "{:.2f} s"))
    data = sparse["data"] + (f" (dense: {dense['data']})" if dense else "")
    title = f"Linear rankers on {data}: same features, same tree, same machine"
    height = 84 + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="14">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(16, 28, title, 'font-weight="bold"'),
        f'<rect x="{_LEFT}" y="42" width="12" height="12" fill="{_OURS}"/>' + _text(_LEFT + 18, 53, "xmc_tf"),
        f'<rect x="{_LEFT + 90}" y="42" width="12" height="12" fill="{_PEER}"/>'
        + _text(_LEFT + 108, 53, "libpecos (C++)"),
    ]
    for number, (title, line, key, form) in enumerate(rows):
        y = 76 + number * _ROW
        most = max(line["ours"][key], line["peer"][key])
        parts.append(_text(_LEFT - 12, y + 20, title, 'text-anchor="end"'))
        for side, color, below in (("ours", _OURS, 0), ("peer", _PEER, 17)):
            value = line[side][key]
            width = max(2, _BAR * value / most)
            parts.append(f'<rect x="{_LEFT}" y="{y + below}" width="{width:.0f}" height="15" fill="{color}"/>')
            note = f" · {line['peer_over_ours'][key]:.1f} times less" if side == "ours" else ""
            parts.append(_text(_LEFT + width + 8, y + below + 12, form.format(value) + note, 'font-size="12"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{_TEXT}" {more}>{text}</text>'


if __name__ == "__main__":
    main()
