from __future__ import annotations

from hatrack.errors import HatrackError
from hatrack.report import builder
from hatrack.report.picture import FULL, HALF, Picture


def test_table_aligns_its_last_columns_as_numbers() -> None:
    html = builder.table("kind", ["Name", "Why", "Value"], [("<a>", "b & c", "0.5")], numbers=1)
    assert '<th>Name</th><th>Why</th><th class="number">Value</th>' in html
    assert '<tr><th>&lt;a&gt;</th><td>b &amp; c</td><td class="number">0.5</td></tr>' in html


def test_a_page_has_its_head_its_cards_and_a_link_to_every_section() -> None:
    head = builder.Head("kind", "T & U", ["here", "", "<there>"], "It went well.")
    card = builder.Card("Label", "<v>", tone="good")
    html = builder.build(head, [card], [builder.Section("one", "First", "<p>body</p>")], "the & end")
    assert "<title>T &amp; U</title>" in html
    assert "<h1>T &amp; U</h1>" in html
    assert '<p class="where">here · &lt;there&gt;</p>' in html
    assert '<a href="#one">First</a>' in html
    assert '<section id="one"><h2>First</h2>\n<p>body</p>' in html
    assert '<div class="card good"><dt>Label</dt><dd><div class="value">&lt;v&gt;</div></dd></div>' in html
    assert "<footer>the &amp; end</footer>" in html


def test_what_can_be_drawn_is_and_the_rest_says_why_once() -> None:
    def refused() -> Picture:
        raise HatrackError("it is <empty>.")

    def drawn(width: float) -> Picture:
        return Picture("a", "A & B", width, 2.0, lambda figure: None, "read <it>", "of c")

    html = builder.pictures([lambda: drawn(HALF), refused, lambda: drawn(FULL), refused])
    assert html.count('<figure class="half"><h3>A &amp; B<span class="about">of c</span></h3><svg') == 1
    assert html.count('<figure class="full">') == 1
    assert html.count("<figcaption>read &lt;it&gt;</figcaption>") == 2
    assert html.endswith('</div><p class="left-out">it is &lt;empty&gt;.</p>')
    assert builder.pictures([refused]) == '<p class="left-out">it is &lt;empty&gt;.</p>'
