"""Modules and data flow of a comparison, as the page gets them."""

from dataclasses import replace

import comparisons
import pytest

from tests.test_api import run
from twintrace import api
from twintrace.model.pairs import Alone, Match
from twintrace.model.records import Call
from twintrace.model.results import CallResult, Comparison, Recording
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.values import Nest, TensorRef
from twintrace.report.comparison_sheet import comparison_sheet
from twintrace.report.document import read_json, write_json
from twintrace.report.graphs import DEEPEST, MOST, comparison_graph
from twintrace.report.page import page_text


def call(number, name, takes=(), gives=(), *, parent=None, path="", kind=Kind.API, again=0, phase=Phase.FORWARD):
    output = Nest("tuple", tuple((str(at), TensorRef(one)) for at, one in enumerate(gives)))
    site = Site(kind, name, again, phase, path, "")
    return Call(number, site, parent, tuple(map(TensorRef, takes)), {}, output)


def module(number, name, takes=(), gives=(), **more):
    return call(number, name, takes, gives, kind=Kind.MODULE, **more)


def comparison(*groups, alone=()):
    """Both sides make these calls; a group of several is one pair."""
    results = []
    for group in groups:
        calls = group if isinstance(group, tuple) else (group,)
        results.append(CallResult(0, 0, Match(calls, calls, "made so"), (), None, None))
    left, right = (Recording(name, "torch", steps=(0,), ranks=(0,)) for name in ("left", "right"))
    only = tuple((0, 0, Alone(one, "made so")) for one in alone)
    return Comparison(left, right, tuple(results), only, (), None, None, "auto")


def unpacked(graph, side=0):
    """Nodes as (name with all names around it), rows, and edges between those names."""
    columns, words = graph["sides"][side], graph["words"]
    names, keys, key = [], [], 0
    for at, (up, step, label) in enumerate(zip(columns["up"], columns["key"], columns["label"], strict=True)):
        names.append((f"{names[at - up]}/" if up else "") + words[label])
        key += step
        keys.append(key)
    edges, to = set(), 0
    for step, back in zip(columns["to"], columns["back"], strict=True):
        to += step
        edges.add(f"{names[to - back]} -> {names[to]}")
    return names, keys, edges


def test_modules_nest_and_an_edge_leads_from_the_call_that_made_the_tensor():
    found = comparison(
        module(0, "", [0], [5]),
        module(1, "stem", [0], [2], parent=0),
        call(2, "torch.nn.functional.conv2d", [0, 1], [2], parent=1, path="stem"),
        module(3, "blocks.0", [2], [4], parent=0),
        call(4, "torch.relu", [2], [4], parent=3, path="blocks.0"),
        call(5, "torch.add", [2, 4], [5], parent=0),
        call(6, "torch.mean", [5], [6]),
    )
    names, keys, edges = unpacked(comparison_graph(found))
    assert names == [
        "(model)",
        "(model)/stem",
        "(model)/stem/conv2d",
        "(model)/blocks",
        "(model)/blocks/0",
        "(model)/blocks/0/relu",
        "(model)/add",
        "mean",
    ]
    assert keys == [0, 2, 4, -1, 6, 8, 10, 12], "2·row; a name that is never called has none"
    made = "(model)/stem/conv2d"
    assert edges == {
        f"{made} -> (model)/blocks/0",  # the module takes it, and so does the function in it
        f"{made} -> (model)/blocks/0/relu",
        f"{made} -> (model)/add",
        "(model)/blocks/0/relu -> (model)/add",
        "(model)/add -> mean",
    }


def test_a_module_that_gives_what_it_got_hands_it_on():
    """Those before it have it from its maker, those after it from the module."""
    found = comparison(
        call(0, "make", [], [0]), call(1, "before", [0], [1]), module(2, "dropout", [0], [0]), call(3, "after", [0], [3])
    )  # fmt: skip
    assert unpacked(comparison_graph(found))[2] == {"make -> before", "make -> dropout", "dropout -> after"}


def test_a_fused_pair_stands_in_the_module_around_all_its_calls():
    found = comparison(
        module(0, "attn", [9], [6]),
        module(1, "attn.query", [9], [2], parent=0),
        module(3, "attn.key", [9], [4], parent=0),
        (
            call(2, "torch.matmul", [9], [2], parent=1, path="attn.query"),
            call(4, "torch.matmul", [9], [4], parent=3, path="attn.key"),
        ),
        call(6, "torch.softmax", [2, 4], [6], parent=0, path="attn"),
    )
    names, _, edges = unpacked(comparison_graph(found))
    assert "attn/matmul + matmul" in names
    assert "attn/query" in names
    assert edges == {"attn/matmul + matmul -> attn/softmax"}, "a module does not feed the calls in it"


def test_calls_by_path_alone_go_into_the_module_of_that_path():
    found = comparison(
        module(0, "net.fc", [0], [1]), call(1, "linear", [0], [1], path="net.fc"), call(2, "cos", path="net.b")
    )
    assert unpacked(comparison_graph(found))[0] == ["net", "net/fc", "net/fc/linear", "net/b", "net/b/cos"]


def test_what_takes_an_unknown_tensor_is_loose_and_a_weight_is_none():
    """The page puts what is loose behind what ran before it."""
    holder = replace(module(0, "fc", [0], [3]), parameters={"weight": 7}, buffers={"scale": 8})
    found = comparison(
        holder,
        call(1, "cast", [7], [1], parent=0, path="fc"),
        call(2, "scale", [8], [2], parent=0, path="fc"),
        call(3, "linear", [0, 1], [3], parent=0, path="fc"),
        call(4, "zeros", [], [4]),
    )
    graph = comparison_graph(found)
    names = unpacked(graph)[0]
    loose = [name for name, flag in zip(names, graph["sides"][0]["loose"], strict=True) if flag]
    assert loose == ["fc", "fc/linear"], "they take 0, which nothing made"


def test_what_was_made_between_two_modules_is_no_weight(tmp_path):
    """Without functions in the record, tensors that nobody is known to have made are trained, too."""
    found = api.compare(run(tmp_path / "a", level="module"), run(tmp_path / "b", level="module"))
    graph = comparison_graph(found)
    names, _, edges = unpacked(graph)
    loose = [name for name, flag in zip(names, graph["sides"][0]["loose"], strict=True) if flag]
    assert "(model)/last" in loose, "the activation before it was not recorded"
    assert "(model)/norm" not in loose
    assert "(model)/first -> (model)/norm" in edges


def test_each_call_of_a_shared_module_is_a_node_of_its_own():
    found = comparison(module(0, "act", [0], [1]), call(1, "exp", [1], [2]), module(2, "act", [2], [3], again=1))
    names, _, edges = unpacked(comparison_graph(found))
    assert names == ["act", "exp", "act #1"]
    assert edges == {"act -> exp", "exp -> act #1"}


def test_other_phases_and_calls_without_a_partner_have_their_place():
    update = call(2, "torch.Tensor.add_", [1], [2], phase=Phase.UPDATE)
    found = comparison(call(0, "exp", [0], [1]), update, alone=[call(1, "aten.abs.default", [1], [7])])
    names, keys, edges = unpacked(comparison_graph(found))
    assert names == ["exp", "abs", "update", "update/add_"]
    assert keys == [0, 1, -1, 2], "2·row + 1 of a call without a partner"
    assert edges == {"exp -> abs", "exp -> update/add_"}


def test_many_siblings_are_put_into_sections():
    found = comparison(*(call(number, f"op{number}", [number - 1], [number]) for number in range(MOST**2 + 1)))
    names, keys, edges = unpacked(comparison_graph(found))
    families = {}
    for name in names:
        families.setdefault(name.rpartition("/")[0], []).append(name)
    assert max(map(len, families.values())) <= MOST
    assert [key for key in keys if key >= 0] == [2 * number for number in range(MOST**2 + 1)], "as executed"
    assert len(edges) == MOST**2
    assert names[0] == f"op0 … op{len(families[names[0]]) * len(families[names[1]]) - 1}"


@pytest.mark.parametrize("parent", [5, 7, 10**9, -3], ids=["itself", "later", "nobody", "negative"])
def test_a_parent_that_cannot_be_is_none(parent):
    odd = call(5, "odd", [1], [2], parent=parent)
    names, _, edges = unpacked(
        comparison_graph(comparison(call(1, "a", [], [1]), odd, call(7, "b", [2], [3], parent=5)))
    )
    assert names == ["a", "odd", "odd/b"]
    assert edges == {"a -> odd"}, "what is around a call does not feed it"


def test_what_is_nested_without_end_is_drawn_at_a_depth():
    deep = [call(number, f"f{number}", [], [], parent=number - 1 if number else None) for number in range(3000)]
    names, _, _ = unpacked(comparison_graph(comparison(*deep, call(5000, "g", path="a." * 5000 + "a"))))
    assert max(name.count("/") for name in names) <= 2 * DEEPEST  # and sections of what is at the end
    assert sum(name.rpartition("/")[2].startswith("f") and "…" not in name.rpartition("/")[2] for name in names) == 3000


def test_a_gradient_of_a_parameter_belongs_to_its_module():
    found = comparisons.comparison(40)
    graph = comparison_graph(found)
    names, _, _ = unpacked(graph)
    columns = graph["sides"][0]
    rows = [row for row, result in enumerate(found.results) if not result.match.left]
    assert rows
    assert [sum(columns["gradient_row"][: at + 1]) for at in range(len(rows))] == rows
    assert [names[node] for node in columns["gradient_node"]] == ["encoder/0/norm", "encoder/1/norm"]


def test_a_report_that_was_written_and_read_has_the_same_graph(tmp_path):
    found = api.compare(run(tmp_path / "a"), run(tmp_path / "b", eps=1e-2, extra=True))
    write_json(found, tmp_path / "report.json")
    graphs = [comparison_graph(item) for item in (found, read_json(tmp_path / "report.json"))]
    for side in (0, 1):
        names, keys, edges = unpacked(graphs[0], side)
        assert "(model)/norm/layer_norm -> (model)/relu" in edges
        assert (names, keys, edges) == unpacked(graphs[1], side)


def test_a_page_without_calls_has_no_graph_and_no_library():
    found = comparison()
    assert comparison_sheet(found).graph is None
    assert 'id="data-layout"' not in page_text(comparison_sheet(found))[0]
    assert 'id="data-layout"' in page_text(comparison_sheet(comparison(call(0, "exp"))))[0]
