"""A page of HTML as its tags and words, for the tests of the report and of the page on one prompt."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """Collect tags and words; an unclosed or a stray tag is an error."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(content)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "svg"} & {*self.open}:
            self.words.append(data)

    @property
    def seen(self):
        """Names of tags."""
        return [tag for tag, _ in self.tags]

    @property
    def text(self):
        """All words in one line."""
        return " ".join("".join(self.words).split())
