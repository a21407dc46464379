"""The prompt: every family of the table, budgets, anchors, literal markers, forced ids."""

from __future__ import annotations

import json

import pytest

from speculation.families import families, markers_for
from speculation.prompt import build_prompt
from speculation.request import CompletionRequest, FrozenPrompt
from speculation.tokenizer import Tokenizer
from tests.conftest import tokenizer_definition

TEXT = "".join(f"def function_{n}(value):\n    return value + {n}\n\n" for n in range(60))


def tokenizer_of(family):
    """A tokenizer that has exactly the markers of one row of the table."""
    names = [family.start, family.prefix, family.suffix, family.middle, family.repository, family.file]
    markers = tuple(dict.fromkeys(m for m in (*names, *family.stop, *family.required) if m))
    return Tokenizer(tokenizer_definition(markers))


def model_name(family):
    return next(iter(family.names), "some-model")


@pytest.fixture(params=[f for f in families() if f.order != "prefix"], ids=lambda f: f.name)
def family(request):
    return request.param


def test_a_family_is_found_by_what_its_tokenizer_has(family):
    assert markers_for(tokenizer_of(family), model_name(family)).family is family


def test_a_model_without_markers_gets_the_prefix_only():
    tokenizer = Tokenizer(tokenizer_definition(("<|endoftext|>", "<|im_end|>")))
    markers = markers_for(tokenizer, "qwen2.5-coder")
    prompt = build_prompt(CompletionRequest("a = 1\nb = 2\nc", 8), tokenizer, markers, 100)
    assert markers.family.order == "prefix" and prompt.suffix == []
    assert tokenizer.decode(prompt.tokens) + prompt.required.decode() == "a = 1\nb "


def test_one_missing_marker_rules_a_family_out():
    for missing in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"):
        rest = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"]
        rest.remove(missing)
        assert markers_for(Tokenizer(tokenizer_definition(tuple(rest)))).family.order == "prefix"


@pytest.mark.parametrize("budget", [64, 100, 256, 1000, 4096])
@pytest.mark.parametrize("at", [0, 700, len(TEXT) - 30, len(TEXT)])
def test_markers_stand_once_and_in_order_and_the_nearest_text_is_kept(family, budget, at):
    tokenizer = tokenizer_of(family)
    markers = markers_for(tokenizer, model_name(family))
    prompt = build_prompt(CompletionRequest(TEXT, at), tokenizer, markers, budget)
    assert len(prompt.tokens) <= budget
    ids = [markers.prefix, markers.suffix, markers.middle]
    if family.order == "spm":
        ids = [markers.suffix, markers.prefix, markers.middle]
    places = [prompt.tokens.index(i) for i in ids if i is not None]
    assert places == sorted(places)
    assert all(prompt.tokens.count(i) == 1 for i in ids if i is not None)
    if markers.start is not None:
        assert prompt.tokens[0] == markers.start and prompt.tokens.count(markers.start) == 1
    line_start = TEXT.rfind("\n", 0, at) + 1
    prefix, suffix = tokenizer.decode(prompt.prefix), tokenizer.decode(prompt.suffix)
    lead = family.prefix_lead
    assert TEXT[:line_start].endswith(prefix.removeprefix(lead)) and TEXT[at:].startswith(suffix)
    assert bool(prefix.strip()) == bool(line_start) and bool(suffix) == (at < len(TEXT))
    typed = tokenizer.decode(prompt.middle) + prompt.required.decode()
    assert typed == TEXT[line_start:at]


def test_markers_written_in_the_users_file_are_text(family):
    tokenizer = tokenizer_of(family)
    markers = markers_for(tokenizer, model_name(family))
    text = "".join(f"x = '{m}'\n" for m in (family.prefix, family.suffix, family.middle, *family.stop) if m)
    prompt = build_prompt(CompletionRequest(text * 2, len(text)), tokenizer, markers, 2000)
    text_ids = {*prompt.prefix, *prompt.suffix, *prompt.middle}
    assert not text_ids & markers.end_ids
    assert tokenizer.decode(prompt.prefix) == family.prefix_lead + text


def test_prefix_and_suffix_stay_the_same_while_a_line_is_typed(tokenizer):
    markers = markers_for(tokenizer)
    at = TEXT.index("    return value + 30") + 4
    prompts = []
    for typed in ("", "r", "re", "return v", "return value * 2"):
        text = TEXT[:at] + typed + TEXT[at:]
        prompts.append(build_prompt(CompletionRequest(text, at + len(typed)), tokenizer, markers, 400))
    assert len({tuple(p.tokens[: p.anchored]) for p in prompts}) == 1


def test_an_anchor_above_makes_whole_lines_part_of_the_middle(tokenizer):
    markers = markers_for(tokenizer)
    at = TEXT.index("value + 30")
    line = TEXT.count("\n", 0, at)
    prompt = build_prompt(CompletionRequest(TEXT, at, anchor_line=line - 1), tokenizer, markers, 400)
    middle = tokenizer.decode(prompt.middle) + prompt.required.decode()
    assert middle == "def function_30(value):\n    return "
    assert prompt.anchor_line == line - 1
    beyond = build_prompt(CompletionRequest(TEXT, at, anchor_line=line + 5), tokenizer, markers, 400)
    assert beyond.anchor_line == line


def test_the_frozen_suffix_is_used_while_the_editor_closes_brackets(tokenizer):
    markers = markers_for(tokenizer)
    before = build_prompt(CompletionRequest("a\nfoo\nb\n", 5), tokenizer, markers, 100)
    frozen = FrozenPrompt("a\n", "\nb\n")
    after = build_prompt(CompletionRequest("a\nfoo()\nb\n", 6, frozen_prompt=frozen), tokenizer, markers, 100)
    assert after.tokens[: after.anchored] == before.tokens[: before.anchored]
    assert tokenizer.decode(after.middle) + after.required.decode() == "foo("


def test_the_window_does_not_slide_with_every_line(tokenizer):
    markers = markers_for(tokenizer)
    begins = set()
    for line in range(100, 130):
        at = sum(len(x) + 1 for x in TEXT.split("\n")[:line])
        prompt = build_prompt(CompletionRequest(TEXT, at), tokenizer, markers, 500)
        begins.add(TEXT[:at].removesuffix(tokenizer.decode(prompt.prefix)).count("\n"))
    assert len(begins) <= 3


@pytest.mark.parametrize(
    ("typed", "required"),
    [
        ("impo", "impo"), ("self.na", ".na"), ("self.", "."), ("foo(", "("), ("    ", "    "), ("", ""),
        ("x = pri", " pri"), ("return ", " "), ("    ret", " ret"), ("if a:", ":"),
    ],
)  # fmt: skip
def test_healing_backs_off_to_the_start_of_the_pre_token(tokenizer, typed, required):
    text = "import os\n" + typed
    prompt = build_prompt(CompletionRequest(text, len(text)), tokenizer, markers_for(tokenizer), 200)
    assert prompt.required.decode() == required
    assert tokenizer.decode(prompt.middle) == typed.removesuffix(required)


def test_generated_ids_of_typed_through_text_are_kept(tokenizer):
    odd = [
        tokenizer.encode(c)[0] for c in "return value"
    ]  # one id per character: never the tokenizer's own choice
    markers = markers_for(tokenizer)
    whole = build_prompt(CompletionRequest("return value", 12, forced_ids=odd), tokenizer, markers, 100)
    assert whole.middle == odd and whole.required == b""
    part = build_prompt(CompletionRequest("return va", 9, forced_ids=odd), tokenizer, markers, 100)
    assert part.middle == odd[:9]
    other = build_prompt(CompletionRequest("return x", 8, forced_ids=odd), tokenizer, markers, 100)
    assert (
        other.middle[:7] == odd[:7] and tokenizer.decode(other.middle) + other.required.decode() == "return x"
    )


def test_a_lone_surrogate_and_an_empty_file_still_make_a_prompt(tokenizer):
    markers = markers_for(tokenizer)
    prompt = build_prompt(CompletionRequest("x = '\ud83d'\ny", 10), tokenizer, markers, 100)
    assert prompt.tokens
    assert build_prompt(CompletionRequest("", 0), tokenizer, markers, 100).tokens
    bare = Tokenizer(tokenizer_definition(("<|endoftext|>",)))
    assert build_prompt(CompletionRequest("", 0), bare, markers_for(bare), 100).tokens


def test_other_files_come_first_in_the_families_own_format(tokenizer):
    markers = markers_for(tokenizer)
    request = CompletionRequest("x = 1\n", 6, path="pkg/main.py", root="/home/me/repo")
    request.context = [("pkg/a.py", "A = 1\n"), ("pkg/b.py", "B = 2\n")]
    prompt = build_prompt(request, tokenizer, markers, 1000)
    text = "".join(tokenizer.decode([t]) for t in prompt.tokens)
    assert text.startswith("<|repo_name|>repo\n<|file_sep|>pkg/a.py\nA = 1\n<|file_sep|>pkg/b.py\nB = 2\n")
    assert text.index("<|file_sep|>main.py\n<|fim_prefix|>x = 1\n") > 0
    assert len(prompt.context) > 0


LITERAL = {  # as the models' own documentation writes them
    "qwen": "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "starcoder2": "<fim_prefix>P<fim_suffix>S<fim_middle>",
    "granite": "<fim_prefix>P<fim_suffix>S<fim_middle>",
    "deepseek-coder": "<｜begin▁of▁sentence｜><｜fim▁begin｜>P<｜fim▁hole｜>S<｜fim▁end｜>",
    "codegemma": "<bos><|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "codellama": "<s>▁<PRE> P▁<SUF>S▁<MID>",
    "codestral": "<s>[SUFFIX]S[PREFIX]P",
    "mellum": "<filename>main.py\n<fim_suffix>S<fim_prefix>P<fim_middle>",
    "seed-coder": "<[begin▁of▁sentence]><[fim-suffix]>S<[fim-prefix]>P<[fim-middle]>",
}


def test_the_layout_is_what_the_models_documentation_writes(family):
    tokenizer = tokenizer_of(family)
    request = CompletionRequest("P\nS", 2, path="pkg/main.py")
    prompt = build_prompt(request, tokenizer, markers_for(tokenizer, model_name(family)), 200)
    written = "".join(tokenizer.decode([token]) for token in prompt.tokens)
    assert written.replace("P\n", "P") == LITERAL[family.name]


def test_a_long_middle_takes_room_of_its_own_before_the_rest_gives_way(tokenizer):
    """What was typed since the anchor was evaluated as it was typed; prefix and suffix are to keep their KV."""
    markers, typed = markers_for(tokenizer), "value = [" + "1234, " * 100
    at = TEXT.index("\n", len(TEXT) // 2) + 1
    line = TEXT.count("\n", 0, at)

    def asked(length, most):
        text = TEXT[:at] + typed[:length] + "\n" + TEXT[at:]
        request = CompletionRequest(text, at + length, anchor_line=line)
        return build_prompt(request, tokenizer, markers, 400, most)

    short, long = asked(9, 800), asked(300, 800)
    assert len(long.middle) > 140, "more than one step of the room"
    assert (long.prefix, long.suffix) == (short.prefix, short.suffix)
    assert asked(300, None).prefix != short.prefix
    for length in range(1, len(typed), 40):
        for most in (None, 410, 500, 800):
            assert len(asked(length, most).tokens) <= (most or 400)


@pytest.mark.parametrize("budget", [64, 70, 100, 300])
def test_long_names_and_other_files_never_break_the_budget(family, budget):
    tokenizer = tokenizer_of(family)
    request = CompletionRequest(TEXT, 700, path="x" * 3000 + ".py", root="/" + "r" * 3000)
    request.context = [("y" * 2000, "z = 1\n" * 50)]
    prompt = build_prompt(request, tokenizer, markers_for(tokenizer, model_name(family)), budget)
    assert len(prompt.tokens) <= budget


def test_the_table_is_data_that_loads_and_names_each_family_once():
    names = [f.name for f in families()]
    assert len(set(names)) == len(names) == 10 and names[-1] == "none"
    json.dumps(names)
