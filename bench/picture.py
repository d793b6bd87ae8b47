"""Draw horizontal bars as SVG, readable on light and dark ground, on a logarithmic scale."""

from __future__ import annotations

from html import escape
from math import log10

WIDTH, LABEL, LINE, HEAD = 760, 120, 22, 34
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.other { fill: #b6c2cf }
.ours { fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .other { fill: #444c56 }
  .ours { fill: #4493f8 }
}
"""


def draw(groups: dict[str, list[tuple[str, float]]]) -> str:
    """Return a picture with a group of bars for each title; the first of each group is ours."""
    parts: list[str] = []
    top = 0
    for title, bars in groups.items():
        top += HEAD
        parts.append(f'<text class="title" x="0" y="{top - 12}">{escape(title)}, logarithmic</text>')
        least, most = (pick(figure for _, figure in bars) for pick in (min, max))
        for number, (name, figure) in enumerate(bars):
            room = WIDTH - LABEL - 80
            length = 30 + (room - 30) * (log10(figure / least) / log10(most / least) if most > least else 1)
            kind = "other" if number else "ours"
            parts.append(f'<text x="{LABEL - 10}" y="{top + 15}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="{LABEL}" y="{top + 3}" width="{length:.0f}" height="16" rx="2"/>')
            parts.append(f'<text x="{LABEL + length + 8:.0f}" y="{top + 15}">{figure:,.0f}</text>')
            top += LINE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])
