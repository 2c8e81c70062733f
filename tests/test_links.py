"""The built pages without a browser: no dead link, and nothing is fetched from another machine."""

import json
import re
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT, pages

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}


class Tags(HTMLParser):
    """Collect the name and the attributes of every tag."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, {name: value or "" for name, value in attributes}))


@cache
def tags(path):
    return Tags(path.read_text(encoding="utf-8")).found


def hrefs(path):
    """Return where the links of a page lead."""
    return [attributes["href"] for name, attributes in tags(path) if name == "a" and "href" in attributes]


@cache
def anchors(path):
    named = {attributes["name"] for name, attributes in tags(path) if name == "a" and "name" in attributes}
    return named | {attributes["id"] for _, attributes in tags(path) if attributes.get("id")}


def problem(page, html, href):
    """Say what is wrong with a link on ``page``, or nothing."""
    url = urlsplit(href)
    if url.scheme or url.netloc or not (url.path or url.fragment):
        return None
    target = (page.parent / unquote(url.path)).resolve() if url.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file() or not target.is_relative_to(html.resolve()):
        return f"{page.name}: {href}: no such page"
    if target.name == "one_page.html" and "=" in url.fragment:
        return None  # settings, which tests/bookkit/test_explorer_for_everyone.py opens
    if url.fragment and target.suffix == ".html" and unquote(url.fragment) not in anchors(target):
        return f"{page.name}: {href}: no such place on the page"
    return None


def test_no_dead_link(html):
    html = html.resolve()
    links = [(page, href) for page in pages(html) for href in hrefs(page)]
    assert len(links) > 50
    problems = [found for page, href in links if (found := problem(page, html, href))]
    assert not problems, "\n".join(problems)


def test_a_dead_link_is_found(tmp_path):
    page = tmp_path / "a.html"
    page.write_text('<p id="here"></p>')
    assert problem(page, tmp_path, "#here") is None and problem(page, tmp_path, "a.html#here") is None
    assert "no such page" in problem(page, tmp_path, "b.html")
    assert "no such place" in problem(page, tmp_path, "#there")


MARKUP = re.compile(r"\{[a-z:]+\}(<[^>]*>)*`|```\{[a-z]")
"""A role or a directive that a stray fence has turned into code."""


def test_no_markup_is_left_on_a_page(html):
    assert MARKUP.search("see {glue:text}`x`") and MARKUP.search("```{math}") and not MARKUP.search("{a} `b`")
    assert [page.name for page in pages(html) if MARKUP.search(page.read_text(encoding="utf-8"))] == []


def test_nothing_is_fetched_from_another_machine(html):
    external = re.compile(r"^(https?:)?//")
    found = []
    for page in pages(html):
        loaded = [attributes.get(LOADED[name]) for name, attributes in tags(page) if name in LOADED]
        links = [attributes for name, attributes in tags(page) if name == "link"]
        loaded += [link.get("href") for link in links if "canonical" not in link.get("rel", "").split()]
        found += [f"{page.name}: {address}" for address in loaded if address and external.match(address)]
    for sheet in (html / "_static").rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.name}: {address}" for address in addresses if external.match(address)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_of_the_repository(file):
    text = (ROOT / file).read_text()
    targets = [target.split("#")[0] for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
    missing = [target for target in targets if target and not (ROOT / target).exists()]
    assert not missing, f"{file}: no such file: {', '.join(missing)}"


def test_edit_links_land_on_the_md(html):
    edits = {href for page in pages(html) for href in hrefs(page) if "/edit/" in href}
    assert edits
    for href in edits:
        name = href.split("/edit/main/")[1]
        assert name.endswith(".md") and (ROOT / name).is_file(), href


@cache
def glued(chapter):
    """Return what a chapter's notebook keeps for prose, by name."""
    cells = json.loads((ROOT / f"notebooks/{chapter}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "data" in output]
    return {
        x["metadata"].get("scrapbook", {}).get("name"): x["data"].get("application/papermill.record/text/plain")
        for x in outputs
    }


def number(x, how=".2f"):
    """Write a number as the README does: no zero before the point."""
    return f"{float(x):{how}}".replace("0.", ".", 1)


def test_the_readme_says_in_words_what_the_chapters_say():
    prose, tokens = (ROOT / "README.md").read_text(), glued("tokens")
    first = {name: float(tokens[f"real_{name}first"]) for name in ("", "attention_")}
    for sentence in (
        f"gives the first token {first['attention_']:.0f} times the average, where {first['']:.1f} is measured",
        f"first token has {float(tokens['use_gradient_256']):.1f} times as much influence as an average one",
        f"changes the prediction {float(tokens['use_replaced_256']):.1f} times as much",
    ):
        assert sentence in prose
    said = glued("predictions")
    kinds = ("large_rank_contributions", "large_rank_ends", "ceiling_large")
    own, blind, most = (number(said[f"predictions_{kind}"], "+.2f") for kind in kinds)
    assert f"a rank correlation of {own}, and one over the distance" in prose
    assert f"nearer end has {blind} (noise allows {most})" in prose and float(own) < float(blind)
    assert float(tokens["real_attention_aside_lost_low"]) > 0, "further than equal shares without the first token, too"
    assert float(tokens["real_rollouts"]) > float(tokens["real_even"]), "further than equal shares"


def test_the_readme_has_the_accuracies_of_the_chapter_documents():
    prose, kept = (ROOT / "README.md").read_text(), glued("documents")
    of = int(kept["documents_contexts"])
    right = [round(of * float(x)) for x in kept["documents_by_place"].strip("'").split()]
    assert f"right for {right[0]} of the {of} questions whose document is first" in prose
    inner = sorted(right[1:-1])
    assert inner[-1] <= of / 4, "as the twelve claims say"
    assert f"{right[-1]} of those whose document is last, and {inner[0]} to {inner[-1]} at a place in between" in prose
    assert f"at least {round(of * float(kept['documents_others_least']))} of {of} at every place" in prose
    real = kept["documents_real_answer"].strip("'.").replace("%", " %")
    assert real.split("SmolLM2 ")[1] in prose and real.split(" about")[0] in prose
    later = f"{float(glued('reading')['reading_later']):.0%}".replace("%", " %")
    reading = glued("reading")
    wrong = int(float(reading["reading_wrong"]))
    chance, names = (float(reading[name]) for name in ("reading_later_chance", "kinds_later_names"))
    assert f"Of its {wrong} wrong answers that one of the competing documents states, {later} are from a" in prose
    assert f"(by chance {chance:.0%}; for names only {names:.0%} are);".replace("%", " %") in prose
    answers = int(glued("source")["source_prompts"])
    assert f"({answers} of {answers}, almost by construction" in prose, "as the chapter asserts"
    of, named, head = (int(glued("source")[f"right_{x}"]) for x in ("answers", "deletion", "reader"))
    assert f"of {of} right answers to real questions" in prose
    assert f"Of these {of} deletion named the right passage of {named}, and one attention head that of {head}." in prose
    mixed = [f"{100 * float(kept[f'mixed_{x}_share']):.3g} %" for x in ("first", "last", "middle")]
    assert "In random order ({}, {} and {}), and among twenty passages".format(*mixed) in prose


AGAIN = ("as_is", "search_last", "search_alone", "one_by_one_likely", "likely_last")
"""Ways of sending passages that the README has numbers of."""


def test_the_readme_says_why_and_what_helps_as_the_chapters_do():
    prose, why, remedies = (ROOT / "README.md").read_text(), glued("why"), glued("remedies")
    share = {name: f"{float(x):.0%}".replace("%", " %") for name, x in (why | remedies).items() if is_number(x)}
    for sentence in (
        f"After {why['why_steps']} steps of training with the answer at every place alike, "
        f"{share['why_every_middle']} of the answers from the middle are right, "
        f"where {share['why_before_middle']} were before",
        f"(to {share['why_apart_middle']} and {share['why_text_middle']} in the middle, means of three seeds)",
        f"answers {share['remedies_plain']} of such questions with all eight documents, and "
        f"{share['remedies_heads']} with the one document",
    ):
        assert sentence in prose
    of_new = {name: f"{float(remedies[f'again_{name}']):.1%}".replace("%", " %") for name in AGAIN}
    assert (
        f"of {remedies['again_questions']} that were asked to confirm it, with eight passages in the order of a "
        f"search, SmolLM2 answers {of_new['as_is']} with all of them, {of_new['search_last']} in its reverse order, "
        f"the best last (a gain in the first hundred of them alone), "
        f"{of_new['search_alone']} with the search's first alone, for a fifth of the tokens, and "
        f"{of_new['one_by_one_likely']} with the one that makes the question likeliest ({of_new['likely_last']} with "
        f"all eight, that one last)"
    ) in prose
    first, second = (float(x) for x in remedies["again_search_last_halves"].strip("'").split(" and "))
    assert first > 0.1 and abs(second) < 0.05
    source = glued("source")
    first, two = source["right_searched"], source["right_searched_two"]
    assert f"has the right passage first for {first}, and among its first two for {two}." in prose
    ends = glued("proper")
    assert "about half of the end's lead in influence goes" in prose
    assert 0.4 < float(ends["why_part_alike"]) < 0.6, "each text counted alike"
    assert "whether any of the beginning's does is undecided" in prose
    assert float(ends["why_first_drawn_alike"]) >= float(ends["why_first_text_alike"])


def test_the_readme_says_what_a_second_model_does_as_the_chapter_does():
    prose, kept = (ROOT / "README.md").read_text(), glued("second")
    share = {name: f"{100 * float(x):.3g} %" for name, x in kept.items() if is_number(x)}
    whole = {name: f"{float(x):.0%}".replace("%", " %") for name, x in kept.items() if is_number(x)}
    near = kept["second_gemma3_16_near"].strip("'").split("%")[0]
    for sentence in (
        f"answers {whole['second_gemma3_8_all']} of such questions with eight documents "
        f"(SmolLM2, asked in the same words, {whole['second_smollm2_8_all']})",
        f"among sixteen it is lost ({share['second_gemma3_16_first']} first, "
        f"{whole['second_gemma3_16_middle']} between, {share['second_gemma3_16_last']} last)",
        f"{near} % of its wrong answers there are from a neighbour of the right document, where favoured places alone "
        f"would give {whole['second_gemma3_16_near_places']},",
        f"{whole['second_again_as_is']} of them are answered with all eight passages, "
        f"{whole['second_again_search_alone']} with the search's first alone and "
        f"{whole['second_again_one_by_one_likely']} with the likeliest alone; another order gains nothing that shows",
    ):
        assert sentence in prose
    lost = {P: kept[f"second_gemma3_{P}_lost"].strip("'") for P in (8, 16)}
    assert lost == {8: "cannot tell", 16: "lost"}
    least, most = re.findall(r"\d+", kept["second_gemma3_16_later"])[1:]
    assert float(least) / 100 < float(kept["second_gemma3_16_later_chance"]) < float(most) / 100


def is_number(x):
    """Whether what is kept is a number."""
    try:
        return x is not None and bool(float(x) or True)
    except ValueError:
        return False


def test_a_number_of_another_page_has_a_format():
    """Without one, what follows the last colon is taken for it, and the page is not built."""
    pages = [ROOT / "index.md", *(ROOT / "book").glob("*.md")]
    found = {page.name: re.findall(r"glue:text}`[^`]*::\w+`", page.read_text(encoding="utf-8")) for page in pages}
    assert not {name: texts for name, texts in found.items() if texts}


def test_the_first_page_shows_a_prompt_of_the_book_and_its_answer():
    """Two documents, the question, and an answer that is the neighbour's, as the study made and kept them."""
    from posbias.lookup.contexts import make_contexts
    from posbias.lookup.tasks import Task
    from studies import results

    kept = results.load("documents", ROOT / "results")["smollm2.used"]
    asks = make_contexts(Task("documents", 8), 2, int(kept.attrs["seed"]))[1].asks["competing"]
    asked = 2
    prose = (ROOT / "index.md").read_text(encoding="utf-8")
    for place in (asked, asked + 1):
        assert f"> *Document {place + 1}:* {asks[asked].documents[place]}" in prose
    assert f"> *Question:* {asks[asked].question}" in prose
    assert kept["source"].values[1, asked] == asked + 1
    assert f"SmolLM2 answers {asks[asked + 1].answer.rstrip('.')}, from the document next to the right one" in prose
