"""Everything in a trace was written by somebody else: no name, path, line or reason is ever taken for more than a text."""

import socket
from dataclasses import replace

import comparisons
import pytest

from twintrace.model.pairs import Alone
from twintrace.model.records import Config, Frame

ATTACKS = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</title></style><svg onload=alert(1)>",
    "'\"><b onmouseover=alert(1)>",
    "javascript:alert(1)",
    "${alert(1)} $policy {{7*7}} <!--",
    "__proto__",
    "constructor",
    "\u202egnp.exe \x00\x1b[31m \ud800 \ufeff",
]


def hostile(text: str):
    """A comparison with `text` wherever a trace can put a text."""
    found = comparisons.comparison(40)

    def call(item):
        frames = (Frame(text, 1, text, text), *item.stack)
        site = replace(item.site, name=text, path=text, type=text)
        return replace(
            item,
            site=site,
            stack=frames,
            config=Config(text, text, {text: text, "eps": 1}),
            args=(text,),
            kwargs={text: text},
            raised=text,
            missing=(text,),
        )

    def tensor(item):
        return replace(item, device=text, missing=text, facts={text: text})

    def result(item):
        match = replace(
            item.match,
            left=tuple(map(call, item.match.left)),
            right=tuple(map(call, item.match.right)),
            because=text,
            only_left=tuple(replace(stray, slot=text, because=text) for stray in item.match.only_right),
        )
        tensors = tuple(
            replace(
                one,
                left=tensor(one.left),
                right=tensor(one.right),
                pair=replace(one.pair, left_slot=text, right_slot=text + "'", because=text),
                verdict=replace(one.verdict, because=text),
            )
            for one in item.tensors
        )
        return replace(item, match=match, tensors=tensors, settings={text: (text, text)})

    results = tuple(map(result, found.results))
    by_identity = {id(old): new for old, new in zip(found.results, results, strict=True)}
    parting = replace(
        found.forward,
        result=by_identity[id(found.forward.result)],
        tensors=by_identity[id(found.forward.result)].tensors,
        because=text,
    )
    alone = tuple((step, rank, Alone(call(item.call), text)) for step, rank, item in found.only_left)
    side = replace(found.left, path=text, framework=text, environment={text: text})
    return replace(
        found,
        results=results,
        forward=parting,
        only_left=alone,
        only_right=alone,
        left=side,
        right=side,
        policy=text,
        remarks=(text,),
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_text_stays_a_text(report, attack):
    page = report(hostile(attack))
    for address in ("#row=0", "#row=5", "#row=2", "#left=0", "#right=1"):
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_selector("#details .part")
        page.evaluate("document.querySelectorAll('#details details').forEach(more => { more.open = true })")
    for view in ("graph", "curves"):
        page.evaluate("address => { location.hash = address }", f"#row=5&view={view}")
        page.locator(f".panel.{view} svg").first.wait_for()
    page.locator("#search").evaluate("box => { box.closest('#filters').hidden = false }")
    page.locator("#search").fill(attack[:20])
    page.locator("#overview").hover(position={"x": 20, "y": 20})
    page.locator("#hover").wait_for()
    for tag in ("img", "svg[onload]", "b[onmouseover]", "iframe"):
        assert page.locator(tag).count() == 0, tag
    assert page.evaluate("Object.keys(Object.prototype).length") == 0
    if attack.isascii():
        assert attack in page.title()
        assert attack in page.locator("h1").inner_text()
        assert attack in page.locator("#details").inner_text()


def test_no_other_script_may_run_and_nothing_may_be_fetched(visits):
    """The page's policy would stop what got through."""
    page = visits.open(visits.write(comparisons.comparison()))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        page.evaluate(
            """address => {
                const script = document.createElement('script');
                script.textContent = 'window.intruder = 1';
                document.body.append(script);
                document.body.insertAdjacentHTML('beforeend', `<img src="${address}x.png" onerror="window.intruder = 2">`);
            }""",
            address,
        )
        assert page.evaluate("address => fetch(address).catch(error => error.name)", address) == "TypeError"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            listener.accept()
    assert page.evaluate("window.intruder") is None
    assert len(visits.complaints) >= 3
    assert all("Content Security Policy" in text for text in visits.complaints)
    visits.complaints.clear()
    visits.requests.clear()
