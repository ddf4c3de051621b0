"""Compare braces with a real bash, and globs with fnmatch and a very simple matcher."""

from __future__ import annotations

import doctest
import fnmatch
import os
import pickle
import subprocess
import time
import tracemalloc
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.base.urls import templates
from ais_tar2tf.base.urls.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.base.urls.templates import expand, unescape
from ais_tar2tf.errors import TemplateError
from ais_tar2tf.options import Limits


def bash(template: str) -> list[str]:
    """Return bash's expansion. Bash drops empty words, so templates begin with a literal character."""
    script = f"printf '%s\\n' {template}"
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    return done.stdout.splitlines()


# --- braces: named examples ----------------------------------------------------------------------------------

EXAMPLES = {
    "train.tar": ["train.tar"],
    "t-{0..3}.tar": ["t-0.tar", "t-1.tar", "t-2.tar", "t-3.tar"],
    "t{008..011}": ["t008", "t009", "t010", "t011"],
    "t{8..011}": ["t008", "t009", "t010", "t011"],
    "t{3..1}": ["t3", "t2", "t1"],
    "t{-2..1}": ["t-2", "t-1", "t0", "t1"],
    "t{-02..1}": ["t-02", "t-01", "t000", "t001"],
    "t{01..-1}": ["t01", "t00", "t-1"],
    "t{0..10..4}": ["t0", "t4", "t8"],
    "t{10..0..4}": ["t10", "t6", "t2"],
    "t{0..10..-4}": ["t0", "t4", "t8"],
    "t{1..3..0}": ["t1", "t2", "t3"],
    "t{+1..3..+2}": ["t1", "t3"],
    "t{+1..03}": ["t01", "t02", "t03"],
    "t{a..e..2}": ["ta", "tc", "te"],
    "t{e..a..-2}": ["te", "tc", "ta"],
    "t{Z..b}": ["tZ", "t[", "t", "t]", "t^", "t_", "t`", "ta", "tb"],
    "t{c..A..10}": ["tc", "tY", "tO", "tE"],
    "t{a,b}{0..1}": ["ta0", "ta1", "tb0", "tb1"],
    "t{,x}": ["t", "tx"],
    "t{,}": ["t", "t"],
    "t{a,{0..2},b{c,d}}": ["ta", "t0", "t1", "t2", "tbc", "tbd"],
    "t{{a,b},{c,d}}": ["ta", "tb", "tc", "td"],
    "t{a}": ["t{a}"],
    "t{}": ["t{}"],
    "t{{},b}": ["t{}", "tb"],
    "t{{a,b}}": ["t{a}", "t{b}"],
    "t{{0..1}x}": ["t{0x}", "t{1x}"],
    "t{1..3,x}": ["t1..3", "tx"],
    "t{1..}": ["t{1..}"],
    "t{1..x}": ["t{1..x}"],
    "t{1..3..x}": ["t{1..3..x}"],
    "t{x..{a,b}}": ["tx..a", "tx..b"],
    "t{x..{0..1}}": ["t{x..{0..1}}"],
    "t{x..{0..1}}{2..3}": ["t{x..{0..1}}2", "t{x..{0..1}}3"],
    r"t\{a,b\}": ["t{a,b}"],
    r"t{a\,b,c}": ["ta,b", "tc"],
    r"t{a,\}}": ["ta", "t}"],
    r"t{\{,x}": ["t{", "tx"],
    r"t\\{a,b}": ["t\\a", "t\\b"],
    r"t{{{a\\b,c},d},e}": ["ta\\b", "tc", "td", "te"],
    r"t{1\..3}": ["t{1..3}"],
    r"t\a": ["ta"],
}


@pytest.mark.parametrize(("template", "names"), EXAMPLES.items())
def test_named_examples(template: str, names: list[str]) -> None:
    assert list(expand(template)) == names
    assert bash(template) == names


def test_all_other_characters_are_literal() -> None:
    assert list(expand("${a,b} 'c' \"d\"")) == ["$a 'c' \"d\"", "$b 'c' \"d\""]
    assert list(expand("ends in \\")) == ["ends in \\"]
    assert list(expand("\0a{\0b,\n}")) == ["\0a\0b", "\0a\n"]
    assert list(expand("{٠..٣}")) == ["{٠..٣}"]  # digits, but not for bash
    assert list(expand("{1..3\n}")) == ["{1..3\n}"]


def test_empty_and_repeated_names_are_kept() -> None:
    assert list(expand("{,x}")) == ["", "x"]
    assert list(expand("{a,a}")) == ["a", "a"]


# --- braces: generated ---------------------------------------------------------------------------------------

words = st.text("ab.-_", max_size=3) | st.sampled_from([r"\{", r"\}", r"\,", r"\\", r"\a", "{}", "{a}", "..", "1"])
numbers = st.integers(-12, 12).flatmap(lambda n: st.sampled_from([f"{n}", f"{n:03d}", f"{n:+d}", f"{n:02d}"]))
letters = st.sampled_from("acgz")
steps = st.sampled_from(["", "..2", "..-3", "..0", "..+5", "..", "..x", "..007"])
ranges = st.builds("{{{}..{}{}}}".format, numbers, numbers, steps)
letter_ranges = st.builds("{{{}..{}{}}}".format, letters, letters, steps)
upper_ranges = letter_ranges.map(str.upper).filter(lambda text: "X" not in text)
no_ranges = st.builds("{{{}..{}}}".format, words, letters)
plain = words | ranges | letter_ranges | upper_ranges | no_ranges


def groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequence = st.lists(inner, min_size=1, max_size=3).map("".join)
    alternatives = st.lists(inner | sequence, min_size=1, max_size=3).map(lambda each: f"{{{','.join(each)}}}")
    return sequence | alternatives | st.builds("{{{}..{}}}".format, inner, inner)


balanced = st.recursive(plain, groups, max_leaves=6).map("x{}".format)
small = balanced.filter(lambda template: len(expand(template)) <= 2_000)


@settings(deadline=None, max_examples=300)
@given(small)
def test_templates_expand_as_in_bash(template: str) -> None:
    assert list(expand(template)) == bash(template)


soup = st.lists(st.sampled_from(["{", "}", ",", "..", ".", "a", "0", "1", "-", "\\", "03"]), max_size=16)


@settings(deadline=None, max_examples=300)
@given(soup.map("".join))
def test_templates_expand_as_in_bash_or_are_unbalanced(text: str) -> None:
    template = f"x{text}x"
    try:
        names = expand(template)
    except TemplateError as error:
        assert "character" in str(error)  # noqa: PT017  # an error is one of two right answers here
    else:
        assert list(names) == bash(template)


# --- names as a sequence -------------------------------------------------------------------------------------


@given(st.lists(small, min_size=1, max_size=3), st.slices(40))
def test_is_a_sequence(several: list[str], cut: slice) -> None:
    names = expand(several)
    listed = list(names)
    assert len(names) == len(listed)
    assert [names[i] for i in range(len(names))] == listed
    assert [names[-i] for i in range(1, len(names) + 1)] == listed[::-1]
    assert names[cut] == listed[cut]
    assert names == listed == [name for template in several for name in expand(template)]
    assert pickle.loads(pickle.dumps(names)) == names  # noqa: S301  # our own bytes


@given(small)
def test_kept_escapes_make_globs_of_the_names(template: str) -> None:
    patterns = expand(template, keep_escapes=True)
    for name, pattern in zip(expand(template), patterns, strict=True):
        assert unescape(pattern) == glob_prefix(pattern) == name
        assert glob_match(pattern)(name)
        assert not is_glob(pattern)


def test_characters_with_a_meaning_in_globs_are_escaped() -> None:
    assert list(expand("{Y..a..2}]", keep_escapes=True)) == ["Y]", r"\[]", r"\]]", "_]", "a]"]


@pytest.mark.parametrize("index", [3, -4])
def test_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        expand("{a,b,c}")[index]


def test_equality_and_repr() -> None:
    names = expand("t{0..9}")
    assert names == expand(["t{0..4}", "t{5..9}"])
    assert names != expand("t{0..8}")
    assert names != "t0"
    assert repr(names) == "<Names 't0' … 't9', 10>"
    assert repr(expand("{a,b}")) == "<Names ['a', 'b']>"


def test_a_pickle_holds_no_names() -> None:
    names = expand("{a,{0..99999}}")
    assert names[-1] == "99999"
    assert len(pickle.dumps(names)) < 1_000


# --- counting ------------------------------------------------------------------------------------------------

HUGE = {
    "{0..999999999}": "1,000,000,000",
    "t-{000000000..999999999}.tar": "1,000,000,000",
    "{0..99999}{0..99999}": "10,000,000,000",
    "{a,{0..999999999}}": "1,000,000,001",
    "{x,{a,{{0..99999}{0..99999},y}}}": "10,000,000,003",
    "{0..9}" * 500: "10^18 or more",
    "{-9223372036854775808..9223372036854775807}": "10^18 or more",
}


def fails(template: str | list[str]) -> str:
    with pytest.raises(TemplateError) as caught:
        expand(template)
    return str(caught.value)


@pytest.mark.parametrize(("template", "count"), HUGE.items())
def test_too_many_names_are_counted_and_not_created(template: str, count: str) -> None:
    message = fails(template)
    assert f" {count} shards" in message
    assert f"{Limits().template:,}" in message
    assert "Limits.template" in message


@pytest.mark.parametrize("template", [each for each in HUGE if len(each) < 100])
def test_counting_is_cheap(template: str) -> None:
    seconds: list[float] = []
    for _ in range(5):  # the best of five tries excludes other load of the machine
        begun = time.perf_counter()
        fails(template)
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.010

    tracemalloc.start()
    try:
        fails(template)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_range_creates_no_list() -> None:
    tracemalloc.start()
    try:
        names = expand("train-{0..999999}.tar")
        assert len(names) == 1_000_000
        assert names[500_000] == "train-500000.tar"
        assert names[::-1][1:3] == ["train-999998.tar", "train-999997.tar"]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_applies_to_the_sum() -> None:
    assert len(expand(["{0..4}", "{0..4}"], limit=10)) == 10
    with pytest.raises(TemplateError, match="a list of 2 templates names 11 shards, the limit is 10"):
        expand(["{0..4}", "{0..5}"], limit=10)


# --- what is no template -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "brace", "at"),
    [
        ("a{b", "{", 1),
        ("a}b", "}", 1),
        ("{a,b}}", "}", 5),
        ("{{a,b}", "{", 0),
        ("{a,b}{c", "{", 5),
        ("x{1{2,3}", "{", 1),
        (r"\{a}", "}", 3),
        (r"{a\}", "{", 0),
        ("{" + "x" * 5_000, "{", 0),
    ],
)
def test_unbalanced(template: str, brace: str, at: int) -> None:
    message = fails(template)
    assert message.startswith(f"'{brace}' that nothing")
    assert f"at character {at} of {template!r}"[:60] in message
    assert rf"\{brace}" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "template", ["{0..99999999999999999999}", "{1..2..9223372036854775808}", "{" + "0" * 5_000 + "..1}"]
)
def test_more_than_64_bits(template: str) -> None:
    assert "64 bits at character 0" in fails(template)


def test_nesting_is_bounded() -> None:
    assert list(expand("{a," * 32 + "b" + "}" * 32)) == ["a"] * 32 + ["b"]
    assert "more than 32 braces within braces at character 96" in fails("{a," * 5_000 + "b" + "}" * 5_000)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ("", "the template is empty"),
        ([], "the list of templates is empty"),
        (["a", ""], "the template is empty"),
        (None, "not NoneType None"),
        (7, "not int 7"),
        (b"x", "not bytes b'x'"),
        (["a", b"x"], "not bytes b'x'"),
        ([["a"]], "not list ['a']"),
        ({"a"}, "not set {'a'}"),
    ],
)
def test_invalid_templates(given_: object, said: str) -> None:
    assert said in fails(given_)  # pyright: ignore[reportArgumentType]  # wrong on purpose


# --- prefixes and globs --------------------------------------------------------------------------------------


def test_prefix() -> None:
    assert is_prefix("train/")
    assert is_prefix("{a,b}/")
    assert not is_prefix("train/x.tar")
    assert not is_prefix("")


@pytest.mark.parametrize(
    ("pattern", "globbed", "prefix"),
    [
        ("train/x.tar", False, "train/x.tar"),
        ("train/*.tar", True, "train/"),
        ("a?b", True, "a"),
        ("a[0-9].tar", True, "a"),
        ("a[0-9.tar", False, "a[0-9.tar"),
        ("a[]", False, "a[]"),
        ("a[]]", True, "a"),
        ("a[!]", False, "a[!]"),
        ("a[b/c]", False, "a[b/c]"),
        (r"a\*b", False, "a*b"),
        (r"a\*b*", True, "a*b"),
        (r"a\[b]", False, "a[b]"),
        ("**/x", True, ""),
        ("[[[[", False, "[[[["),
    ],
)
def test_is_glob_and_prefix(pattern: str, globbed: bool, prefix: str) -> None:
    assert is_glob(pattern) is globbed
    assert glob_prefix(pattern) == prefix


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.tar", ["a.tar"], ["A.tar", "a_tar", "xa.tar", "a.tar\n", "a.tarx"]),
        ("*.tar", ["a.tar", ".tar", "a\n.tar"], ["a/b.tar", "/a.tar", "a.tar.gz"]),
        ("t/*", ["t/", "t/a"], ["t", "t/a/b"]),
        ("a?c", ["abc", "a.c"], ["ac", "a/c", "abbc"]),
        ("a**c", ["ac", "abc", "a/b/c"], ["ab"]),
        ("a/**", ["a/", "a/b", "a/b/c"], ["a", "ab"]),
        ("**", ["", "a", "a/b"], []),
        ("**/c", ["c", "a/c", "a/b/c", "/c"], ["bc", "a/bc", "c/"]),
        ("a/**/c", ["a/c", "a/b/c", "a/b/b/c", "a//c"], ["ac", "a/bc", "ab/c"]),
        ("a**/c", ["a/c", "ab/c", "a/b/c"], ["c", "ac"]),
        ("**/x-*.tar", ["x-1.tar", "a/x-1.tar", "x-/x-1.tar"], ["x-1/a.tar"]),
        ("**a*b", ["ab", "a/ab", "axb"], ["a/b"]),
        ("*a*/**b*c", ["a/bc", "xax/y/b-c"], ["a/b/c", "x/bc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "Ax", "x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax", "/x"]),
        ("[^a]x", ["bx", "^x"], ["ax"]),
        ("[]a]", ["]", "a"], ["b", "[]a]"]),
        ("[!]a]", ["b"], ["]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[-a]", ["a", "-"], ["b"]),
        ("[+-9]", ["+", "5", "."], ["/"]),
        ("[z-a]", [], ["z", "a", "m", "-"]),
        ("[!z-a]", ["z", "m"], ["/"]),
        (r"[\]]", ["]"], ["\\"]),
        (r"[a\-c]", ["a", "-", "c"], ["b", "\\"]),
        (r"[\\]", ["\\"], ["a"]),
        ("[.]", ["."], ["a"]),
        ("[[]", ["["], ["]"]),
        (r"\*", ["*"], ["a", "\\*"]),
        (r"a\?[\*]", ["a?*"], ["abc"]),
        ("a[b", ["a[b"], ["ab"]),
        ("a[b/c]d", ["a[b/c]d"], ["abd"]),
        ("a.b+(c)|d", ["a.b+(c)|d"], ["aXb"]),
        ("*", ["", "a", ".hidden"], ["a/b"]),
    ],
)
def test_glob(pattern: str, yes: list[str], no: list[str]) -> None:
    match = glob_match(pattern)
    assert [name for name in yes if not match(name)] == []
    assert [name for name in no if match(name)] == []


def simply_matches(pattern: str, name: str) -> bool:
    """Match stars by their definition, slowly, and without character classes."""

    @cache
    def match(p: int, n: int) -> bool:
        if pattern.startswith("**", p):
            end = p + len(pattern[p:]) - len(pattern[p:].lstrip("*"))
            if pattern[end : end + 1] == "/" and (p == 0 or pattern[p - 1] == "/"):
                return match(end + 1, n) or any(name[i] == "/" and match(end + 1, i + 1) for i in range(n, len(name)))
            return any(match(end, i) for i in range(n, len(name) + 1))
        if p < len(pattern) and pattern[p] == "*":
            return match(p + 1, n) or (n < len(name) and name[n] != "/" and match(p, n + 1))
        if p == len(pattern) or n == len(name):
            return p == len(pattern) and n == len(name)
        same = name[n] != "/" if pattern[p] == "?" else name[n] == pattern[p]
        return same and match(p + 1, n + 1)

    return match(0, 0)


pieces = st.sampled_from(["a", "b", "/", "*", "?", "**", "**/", "/**/", "*a", "*b"])


@settings(max_examples=1_000)
@given(st.lists(pieces, max_size=8).map("".join), st.text("ab/", max_size=12))
def test_stars_match_by_their_definition(pattern: str, name: str) -> None:
    assert glob_match(pattern)(name) is simply_matches(pattern, name)


@settings(max_examples=500)
@given(st.text("ab*?[!]-c", max_size=10), st.text("abc-[]!", max_size=8))
def test_without_folders_globs_match_as_fnmatch(pattern: str, name: str) -> None:
    assert glob_match(pattern)(name) is fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 50 + "b", "a" * 1_024),
        ("**a" * 50 + "b", "a" * 1_024),
        ("**" + "a*" * 50 + "b", "a" * 1_024),
        ("**/*a*/" * 20 + "b", "a/" * 512),
        ("**/" * 50 + "b", "a/" * 512),
        ("?*" * 50 + "b", "a" * 1_024),
        ("*" * 1_000 + "b", "a" * 1_024),
        ("*[a-z]" * 50 + "1", "a" * 1_024),
    ],
)
def test_hostile_patterns(pattern: str, name: str) -> None:
    match = glob_match(pattern)
    begun = time.perf_counter()
    assert not match(name)
    assert time.perf_counter() - begun < 1.0  # milliseconds in fact; a backtracking matcher needs years


def test_braces_expand_to_globs() -> None:
    patterns = expand(r"{a,b}/\{x\}[0-{3,4}]*", keep_escapes=True)
    assert list(patterns) == [rf"{folder}/\{{x\}}[0-{top}]*" for folder in "ab" for top in "34"]
    assert [glob_prefix(pattern) for pattern in patterns[::2]] == ["a/{x}", "b/{x}"]
    assert [glob_match(pattern)("a/{x}4.tar") for pattern in patterns] == [False, True, False, False]


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(templates).failed == 0
