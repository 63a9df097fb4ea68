"""The tree: as small as it can be, laid out so that intervals tell who sees whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from eclose_train.likelihood.prefix_tree import PrefixTree, ScoredTree, group_scores_by_path
from eclose_train.likelihood.score import pack_family_forests
from eclose_train.likelihood.spans import SpanScore, TokenPart, TokenPath

pytestmark = pytest.mark.torch

paths = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=8), min_size=1, max_size=7)


def path(ids):
    return TokenPath(tuple(ids), ((TokenPart.STEP, 0),) * len(ids))


def scores(many):
    return [SpanScore(str(number), path(ids), tuple(range(1, len(ids)))) for number, ids in enumerate(many)]


@given(paths)
def test_one_node_for_every_distinct_beginning(many):
    tree = PrefixTree()
    for ids in many:
        tree.insert(ids)
    assert len(tree) == len({tuple(ids[:cut]) for ids in many for cut in range(1, len(ids) + 1)})


@given(paths)
def test_a_token_sees_its_ancestors_and_nothing_else(many):
    tree = PrefixTree()
    nodes = [tree.insert(ids) for ids in many]
    layout, row_of = tree.layout()
    mask = layout.mask
    for branch, ids in zip(nodes, many, strict=True):
        where = [int(row_of[node]) for node in branch]
        for depth, here in enumerate(where):
            assert layout.ids[here] == ids[depth]
            assert layout.positions[here] == depth
            assert [j for j in range(len(layout)) if mask[here, j]] == where[: depth + 1]
    assert mask.sum() == layout.pairs


@given(paths)
def test_chains_cover_the_mask_exactly(many):
    """A causal square and a dense rectangle per chain are all that is seen, once each."""
    tree = PrefixTree()
    for ids in many:
        tree.insert(ids)
    layout, _ = tree.layout()
    counts = layout.mask * 0
    for start, stop, end in layout.segments:
        for row in range(start, stop):
            counts[row, start : row + 1] += 1
        counts[stop:end, start:stop] += 1
    assert (counts == layout.mask).all()


@given(paths)
def test_every_scored_token_has_its_parents_row(many):
    tree = ScoredTree.of(scores(many))
    readout, layout = tree.readout, tree.layout
    assert len(set(readout.rows.tolist())) == len(readout.rows)
    assert readout.counts.tolist() == [len(ids) - 1 for ids in many]
    reached = 0
    for number, ids in enumerate(many):
        for token in ids[1:]:
            assert readout.targets[reached] == token
            assert readout.score_of[reached] == number
            reached += 1
    children = {(int(layout.parent[n]), int(layout.ids[n])) for n in range(len(layout))}
    for row, target in zip(readout.rows[readout.row_of], readout.targets, strict=True):
        assert (int(row), int(target)) in children


@given(paths)
def test_chains_keep_no_path_that_begins_another(many):
    groups = group_scores_by_path(scores(many))
    longest = [max((score.path.ids for score in group), key=len) for group in groups]
    assert sum(map(len, groups)) == len(many)
    for number, ids in enumerate(longest):
        assert not any(other[: len(ids)] == ids for n, other in enumerate(longest) if n != number)
    for group, ids in zip(groups, longest, strict=True):
        assert all(ids[: len(score.path.ids)] == score.path.ids for score in group)


def test_a_path_is_only_as_long_as_it_is_scored():
    tree = ScoredTree.of([SpanScore("s", path([1, 2, 3, 4, 5]), (1, 2))])
    assert tree.layout.ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("positions", [(), (0, 1)])
def test_a_score_needs_tokens_with_something_before_them(positions):
    with pytest.raises(ValueError, match="no token to score"):
        SpanScore("s", path([1, 2]), positions)


def test_tokens_and_parts_go_together():
    with pytest.raises(ValueError, match="2 tokens"):
        TokenPath((1, 2), ((TokenPart.STEP, 0),))


def test_forests_share_their_root_and_keep_their_budget():
    root = [9] * 50
    families = [scores([[*root, number, 1], [*root, number, 2]]) for number in range(6)]
    # Each family adds three tokens to the root it shares with the others: 50 + 3 n.
    assert pack_family_forests(families, budget=59) == [[0, 1, 2], [3, 4, 5]]
    assert pack_family_forests(families, budget=10) == [[n] for n in range(6)]
    assert pack_family_forests(families, budget=10_000) == [list(range(6))]
    assert pack_family_forests([], budget=1) == []
