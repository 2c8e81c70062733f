"""What a link to a page shows elsewhere: its title, a description from its answer, and one image for the whole book."""

from __future__ import annotations

import io
import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import tex2unichar

CARD = "social.png"
"""The image, in the folder of the book's assets."""
SIZE = (1200, 630)
"""Width and height in pixels of the image, as Open Graph asks for it."""
LEAST, MOST = 60, 300
"""Characters of a description, about: sentences are added up to the first number, and the last is cut at the second."""
SYMBOLS: dict[str, str] = tex2unichar.mathalpha | tex2unichar.mathop | tex2unichar.mathrel | tex2unichar.mathbin


def plain(node: nodes.Node) -> str:
    r"""Return the text of a node on one line, its formulas in Unicode where that has their symbols.

    >>> plain(nodes.paragraph("", "", nodes.Text("If "), nodes.math("", r"\tau = \sum_t\,\lambda_t \ge \frac12")))
    'If τ = ∑_tλ_t ≥ 1/2'
    """
    texts = (symbols(text) if isinstance(text.parent, nodes.math) else str(text) for text in node.findall(nodes.Text))
    return " ".join("".join(texts).split())


def symbols(formula: str) -> str:
    r"""Put Unicode in place of LaTeX's commands; of those that it lacks, the name is left.

    >>> symbols(r"-\log(i/j)")
    '-log(i/j)'
    """
    formula = re.sub(r"\\frac(\w)(\w)", r"\1/\2", formula)
    return re.sub(r"\\(?:([A-Za-z]+)|.)", lambda found: SYMBOLS.get(found[1] or "", found[1] or ""), formula)


def description(page: nodes.document) -> str:
    """Return the first sentences of a page's answer or, where no paragraph is named so, of its first paragraph.

    >>> from docutils.utils import new_document
    >>> page, texts = new_document("page"), ["What for?", "Answer. On paper. It is for the case in hand. It is long."]
    >>> page += nodes.section("", *(nodes.paragraph(text=text) for text in texts))
    >>> description(page)
    'On paper. It is for the case in hand. It is long.'
    """
    found = [node for node in page.findall(nodes.paragraph) if isinstance(node.parent, nodes.section)]
    texts = [plain(node) for node in found if "reading-time" not in node["classes"]]
    texts = [text for text in texts if not text.endswith("?")]
    chosen = next((text for text in texts if text.startswith("Answer.")), texts[0]).removeprefix("Answer.").strip()
    first, *rest = re.split(r"(?<=[.?!])\s+(?=[A-Z0-9])", chosen)
    while len(first) < LEAST and rest:
        first += " " + rest.pop(0)
    return textwrap.shorten(first, MOST, placeholder=" …")


def add_previews(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page that has a source its description, and what Open Graph asks for."""
    if doctree is None:
        return
    said = description(doctree)
    properties = {
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:title": plain(doctree.next_node(nodes.title)),
        "og:description": said,
        "og:url": context["pageurl"],
        "og:image": f"{app.config.html_baseurl}_static/{CARD}",
        "og:image:width": str(SIZE[0]),
        "og:image:height": str(SIZE[1]),
        "og:image:alt": "Influence against token position for BLOOM-176B, in four panels.",
    }
    lines = [f'<meta name="description" content="{escape(said)}" />']
    lines += [f'<meta property="{name}" content="{escape(value)}" />' for name, value in properties.items()]
    lines.append('<meta name="twitter:card" content="summary_large_image" />')
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def social_card(figure: bytes, title: str) -> bytes:
    """Draw the book's title beside one of its figures, and return the PNG."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    card = Image.new("RGB", SIZE, "white")
    with Image.open(io.BytesIO(figure)) as image:
        image.thumbnail((SIZE[0] - 440, SIZE[1] - 50), Image.Resampling.LANCZOS)
        card.paste(image.convert("RGB"), (SIZE[0] - image.width - 20, (SIZE[1] - image.height) // 2))
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    draw = ImageDraw.Draw(card)
    for text, name, size, top in (
        (textwrap.fill(title, 15), "DejaVuSans-Bold.ttf", 44, 190),
        ("A book that runs:\ntheorems, measurements\nand what came out", "DejaVuSans.ttf", 26, 350),
    ):
        draw.multiline_text((40, top), text, "black", ImageFont.truetype(fonts / name, size), spacing=12)
    kept = io.BytesIO()
    card.quantize(32).save(kept, "PNG", optimize=True)
    return kept.getvalue()
