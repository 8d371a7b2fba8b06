"""What tests read of the page: elements and texts as a browser's parser sees them, and payloads that must stay text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

PAYLOADS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</pre><iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "</option></select><img src=x onerror=alert(1)>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "javascript:alert(1)",
    "<iframe src=javascript:alert(1)></iframe>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<form action=javascript:alert(1)><button>x</button></form>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<object data=javascript:alert(1)></object>",
    "<div hx-get=/logout hx-trigger=load></div>",
    "<img src=x hx-on:load=alert(1)>",
    "{{ 7 * 7 }}{% for x in [1] %}{{ x }}{% endfor %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;<script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "\u003cscript\u003ealert(1)\u003c/script\u003e",
    "<style>*{background:url(//evil.example)}</style>",
)  # fmt: skip


@dataclass
class Shown(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        """Keeps a text."""
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts, with one space between words."""
        return " ".join(" ".join(self.texts).split())

    def values(self, tag: str, attribute: str) -> list[str]:
        """Returns the values of an attribute of all elements of a kind that have it."""
        return [attributes[attribute] for name, attributes in self.elements if name == tag and attribute in attributes]


def shown(html: str) -> Shown:
    """Reads a page."""
    found = Shown()
    found.feed(html)
    found.close()
    return found


def faults_of(html: str) -> Iterator[str]:
    """Yields what a page holds that could run or load something which is not ours."""
    for tag, attributes in shown(html).elements:
        if tag in ("iframe", "object", "embed", "base", "style", "video", "math", "source", "audio", "frame"):
            yield f"an element <{tag}>"
        if tag == "script" and not attributes.get("src", "").startswith("/static/"):
            yield "a script that is not a file of ours"
        for name, value in attributes.items():
            if name.startswith("on") or name == "style" or "hx-on" in name or name == "srcdoc":
                yield f"<{tag} {name}={value!r}>"
            if name in ("href", "src", "action", "hx-get") and not value.startswith(("/", "#")):
                yield f"<{tag} {name}={value!r}>"
            if name in ("href", "src", "action", "hx-get") and value.startswith("//"):
                yield f"<{tag} {name}={value!r}>"
        if tag == "meta" and attributes.get("http-equiv"):
            yield "<meta http-equiv>"
        if tag == "div" and attributes.get("hx-get") == "/logout":
            yield "a payload's own htmx"
