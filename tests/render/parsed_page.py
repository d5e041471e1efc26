"""What a browser would see of a page."""

from html.parser import HTMLParser

Attributes = dict[str, str | None]


class ParsedPage(HTMLParser):
    """Collects tags and texts, and checks that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Attributes]] = []
        self.open: list[tuple[str, str | None]] = []
        self.texts: list[tuple[str, str | None, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self.open.append((tag, dict(attrs).get("class")))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((*self.open[-1], data.strip()))

    def of(self, name: str) -> list[str]:
        """The texts directly in tags or classes of a name."""
        return [text for tag, kind, text in self.texts if name in (tag, kind)]

    def all(self, tag: str) -> list[Attributes]:
        """The attributes of all tags of a name."""
        return [attributes for name, attributes in self.tags if name == tag]
