"""Tag expressions: what they match, and which spellings are the same."""

from __future__ import annotations

import pytest

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.tags import TAGS_CHARACTERS_MAX, TAGS_MAX, parse_tags
from orbitmq.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_an_empty_expression_and_a_star_match_every_tag(expression: str | None) -> None:
    tags = parse_tags(expression)

    assert tags.tags is None
    assert tags.normalised == "*"
    assert all(map(tags.matches, (0, java_hash("TagA"), -(2**31))))


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||TagA", {"TagA", "TagB"}),
        ("\t TagA\n||  || TagB ||", {"TagA", "TagB"}),
        ("Tag A", {"Tag A"}),
        ("TagA|TagB", {"TagA|TagB"}),
        ("|||", {"|"}),
        ("中文 || *", {"中文", "*"}),
        (" * ", {"*"}),
        # A space that Java's trim does not know belongs to the tag.
        ("\u00a0a", {"\u00a0a"}),
        ("   ", set()),
        (" || ", set()),
    ],
)
def test_an_expression_gives_the_tags_that_rocketmq_reads(expression: str, tags: set[str]) -> None:
    assert parse_tags(expression).tags == frozenset(tags)


def test_a_filter_matches_only_the_hashes_of_its_tags() -> None:
    tags = parse_tags("TagA || 中文")

    assert tags.hashes == {java_hash("TagA"), java_hash("中文")}
    assert tags.matches(java_hash("中文"))
    assert not tags.matches(java_hash("TagB"))
    assert not tags.matches(0)


def test_a_filter_without_any_tag_matches_nothing() -> None:
    assert not parse_tags(" || ").matches(0)


def test_the_length_of_an_expression_is_bounded() -> None:
    longest = "a" * TAGS_CHARACTERS_MAX

    assert parse_tags(longest).tags == frozenset({longest})
    with pytest.raises(FilterSyntaxError, match="16385 characters are above the limit of 16384"):
        parse_tags(longest + "a")


def test_the_number_of_tags_is_bounded() -> None:
    most = "||".join(map(str, range(TAGS_MAX)))

    assert len(parse_tags(most).tags or ()) == TAGS_MAX
    with pytest.raises(FilterSyntaxError, match="1001 tags are above the limit of 1000"):
        parse_tags(most + "||x")


def test_order_repetition_and_spaces_do_not_change_a_filter() -> None:
    one, other = parse_tags("b||a"), parse_tags(" a ||b || a")

    assert one == other
    assert one.normalised == other.normalised == "a || b"
    assert parse_tags(one.normalised) == one


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_nothing_but_separators_is_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"column 1: expected tags around \|\|"):
        parse_tags(expression)
