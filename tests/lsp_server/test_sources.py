"""The stores as the editors feed them: what may be copied from where."""

import pickle
import subprocess
import sys
import threading
import time

import pytest

from cache import history, index_builder
from cache.frozen_index import indexes_of
from cache.paths import history_dir, index_dir
from lsp_server.documents import Document
from lsp_server.feed import SourceFeed
from lsp_server.settings import Settings
from lsp_server.sources import Sources
from lsp_server.stores import SLICE, RootedDrafter, RootedStores
from speculation.costs import CostTable
from speculation.draft import DraftRequest
from speculation.policy import GainPolicy
from tests.conftest import tokenizer_definition

TEXT = "def helper(first, second):\n    return first_thing(second) + other_thing(first)\n"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two workspace roots, and the product's own directories elsewhere."""
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPEC_COMPLETE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return tmp_path


class Fed:
    """Sources with stores but no engine, and one client's feed."""

    def __init__(self, tokenizer, places):
        self.tokenizer = tokenizer
        self.settings = Settings(index=False)
        self.sources = Sources()
        self.stores = RootedStores(tokenizer, places / "tokenizer.json")
        self.feed = SourceFeed(self.sources, lambda: self.settings)
        self.drafter = RootedDrafter(self.stores, GainPolicy(CostTable.flat()))

    def settle(self):
        """Works on the events that the sources' thread would work on."""
        while not self.sources._events.empty():
            self.sources._events.get()(self.stores)

    def draft(self, prefix, root, document="now.py"):
        self.settle()
        ids = self.tokenizer.encode(prefix)
        self.drafter.start(DraftRequest(ids, document=document, root=str(root), vocab_size=10_000))
        draft = self.drafter.draft(32)
        return self.tokenizer.decode(draft.tokens)

    def open_documents(self, context, root):
        """What an open document of this root says after a text."""
        index = self.stores.of_root(self.stores.root(str(root))).open_documents
        matches = index.query(self.tokenizer.encode(context), 1)
        return self.tokenizer.decode(index.continuation(matches[0], 32)) if matches else ""


@pytest.fixture
def fed(tokenizer, places):
    return Fed(tokenizer, places)


def document(path, text, language="python"):
    return Document(f"file://{path}", language, 1, text)


def test_an_open_document_is_copied_from_in_its_own_root_only(fed, places):
    fed.feed.set_roots([str(places / "one"), str(places / "two")])
    fed.feed.opened(document(places / "one" / "a.py", TEXT))
    start = "x = 1\n\ndef helper(first, second):\n    return first_thing"
    assert fed.draft(start, places / "one").startswith("(second) + other_thing")
    assert "other_thing" not in fed.draft(start, places / "two")
    assert "other_thing" not in fed.draft(start, "")


def test_an_edit_is_found_and_what_it_removed_is_a_draft_too(fed, places):
    fed.feed.set_roots([str(places / "one")])
    opened = document(places / "one" / "a.py", TEXT)
    fed.feed.opened(opened)
    before = opened.snapshot()
    line = {"line": 1, "character": 11}
    span = {"start": line, "end": {"line": 1, "character": 30}}
    edit = opened.apply({"range": span, "text": "entirely_different(second, first)"}, "utf-16")
    fed.feed.edited(opened, before, edit)
    fed.settle()
    assert fed.stores._hot.text(str(places / "one" / "a.py")) == opened.text
    assert fed.open_documents("return entirely_different", places / "one").startswith("(second, first)")
    deleted = fed.stores.root(str(places / "one")).deleted.passages("a.py")
    assert [fed.tokenizer.decode(ids) for ids in deleted] == [TEXT.split("\n")[1][11:30]]


def test_secrets_and_untitled_documents_are_not_fed(fed, places):
    fed.feed.set_roots([str(places / "one")])
    fed.feed.opened(document(places / "one" / ".env", TEXT, "dotenv"))
    fed.feed.opened(document(places / "one" / "id_rsa", TEXT, ""))
    fed.feed.opened(Document("untitled:Untitled-1", "python", 1, TEXT))
    fed.feed.opened(Document("git:/one/a.py", "python", 1, TEXT))
    fed.settle()
    assert len(fed.stores._hot) == 0


def test_a_removed_root_and_a_closed_document_are_forgotten(fed, places):
    roots = [str(places / "one"), str(places / "two")]
    fed.feed.set_roots(roots)
    opened = document(places / "one" / "a.py", TEXT)
    fed.feed.opened(opened)
    fed.feed.opened(document(places / "two" / "b.py", TEXT))
    fed.settle()
    assert len(fed.stores._hot) == 2
    fed.feed.closed(opened)
    fed.feed.set_roots(roots[:1])
    fed.settle()
    assert len(fed.stores._hot) == 0


def test_one_clients_edits_do_not_garble_a_file_that_another_has_open_too(fed, places):
    fed.feed.set_roots([str(places / "one")])
    other = SourceFeed(fed.sources, lambda: fed.settings)
    mine, theirs = (document(places / "one" / "a.py", text) for text in (TEXT, "x = 1\n" + TEXT))
    fed.feed.opened(mine)
    other.opened(theirs)
    before = mine.snapshot()
    at = {"line": 0, "character": 4}
    fed.feed.edited(mine, before, mine.apply({"range": {"start": at, "end": at}, "text": "my_"}, "utf-16"))
    fed.settle()
    assert fed.stores._hot.text(str(places / "one" / "a.py")) == mine.text


@pytest.mark.parametrize("history", [True, False])
def test_accepted_text_is_remembered_unless_history_is_off(fed, places, history):
    fed.settings = Settings(index=False, history=history)
    fed.feed.set_roots([str(places / "one")])
    opened = document(places / "one" / "a.py", "")
    fed.feed.opened(opened)
    fed.feed.accepted(opened, "return quite_special_name(argument_one, argument_two)")
    drafted = fed.draft("x\nreturn quite_special_name(", places / "one")
    assert drafted.startswith("argument_one, argument_two)") is history
    assert any((places / "state").rglob("*.jsonl")) is history


def test_files_of_the_workspace_are_copied_from_but_not_ignored_ones(places, tokenizer):
    (places / "tokenizer.json").write_text(tokenizer._fast.to_str())
    (places / "one" / "node_modules").mkdir()
    (places / "one" / "loop").symlink_to(places / "one", target_is_directory=True)
    (places / "one" / "lib.py").write_text(TEXT * 3)
    (places / "one" / "node_modules" / "dep.py").write_text("never_to_be_seen(by, anyone, at, all)\n" * 3)
    (places / "one" / "secrets.yml").write_text("never_to_be_seen: by_anyone\n" * 3)
    fed = Fed(tokenizer, places)
    fed.settings = Settings()
    fed.feed.set_roots([str(places / "one")])
    fed.settle()
    indexer = fed.stores.root(str(places / "one")).indexer
    assert indexer is not None and indexer.built.wait(100)
    deadline = time.monotonic() + 10
    while fed.stores.root(str(places / "one")).frozen.token_count == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fed.draft("x\n    return first_thing(second) +", places / "one").startswith(" other_thing")
    assert "anyone" not in fed.draft("x\nnever_to_be_seen(by,", places / "one")
    fed.stores.stop()


class Indexed:
    """Stands for a frozen index or an indexer: remembers what it was told."""

    def __init__(self):
        self.overridden = set()
        self.stopped = False

    def override(self, paths):
        self.overridden = paths

    def stop(self):
        self.stopped = True


def test_any_changed_setting_or_neighbour_makes_a_root_anew_and_stops_its_indexer(fed, places):
    one, two = str(places / "one"), str(places / "two")
    settings = [
        Settings(index=False),
        Settings(index=False, secret_patterns=["hidden_*"]),
        Settings(index=False, secret_patterns=["hidden_*"], history=False),
    ]
    for others in ((), (two,)):
        for changed in settings:
            before = fed.stores.root(one)
            before.indexer = Indexed()
            fed.stores.add_root(one, others, changed)
            assert fed.stores.root(one) is not before
            assert before.indexer.stopped
            fed.stores.add_root(one, others, changed)
            same = fed.stores.root(one)
            fed.stores.add_root(one, others, changed)
            assert fed.stores.root(one) is same


def test_open_text_of_a_root_that_is_going_is_in_no_other_roots_drafts(fed, places):
    fed.feed.set_roots([str(places / "one"), str(places / "two")])
    fed.feed.opened(document(places / "one" / "a.py", TEXT))
    fed.settle()
    with fed.stores._lock:
        fed.stores._roots.pop(str(places / "one"))  # what remove_root does first
    assert fed.open_documents("    return first_thing", places / "two") == ""
    assert fed.open_documents("    return first_thing", places / "one") != ""


def test_an_open_file_is_overridden_until_it_is_closed_or_evicted(fed, places):
    one = places / "one"
    fed.feed.set_roots([str(one)])
    fed.settle()
    frozen = fed.stores.root(str(one)).frozen = Indexed()
    first, second = document(one / "a.py", TEXT), document(one / "sub" / "b.py", TEXT)
    fed.feed.opened(first)
    fed.feed.opened(second)
    fed.settle()
    assert frozen.overridden == {"a.py", "sub/b.py"}
    fed.feed.closed(second)
    fed.settle()
    assert frozen.overridden == {"a.py"}
    fed.feed.opened(second)
    fed.settle()
    fed.stores._hot._max_tokens = 1
    before = second.snapshot()
    at = {"line": 0, "character": 0}
    fed.feed.edited(
        second, before, second.apply({"range": {"start": at, "end": at}, "text": "x = 1\n"}, "utf-16")
    )
    fed.settle()
    assert frozen.overridden == {"sub/b.py"}


def test_only_changes_that_can_matter_start_a_build_in_their_root_only(fed, places):
    one, two = places / "one", places / "two"
    fed.feed.set_roots([str(one), str(two)])
    fed.settle()
    told = {}
    for path in (one, two):
        root = fed.stores.root(str(path))
        root.indexer = Indexed()
        root.indexer.changed = lambda paths, name=path.name: told.setdefault(name, []).extend(paths)
    noise = [".git/index.lock", "a/node_modules/b/c.js", "__pycache__/a.pyc", ".git"]
    fed.feed.files_changed([f"file://{one}/{name}" for name in noise])
    fed.settle()
    assert told == {}
    matters = ["a.py", ".gitignore", ".git/info/exclude", "directory"]
    fed.feed.files_changed([f"file://{one}/{name}" for name in [*noise, *matters]])
    fed.settle()
    assert told == {"one": [f"{one}/{name}" for name in matters]}


def test_a_root_stays_until_the_last_client_that_has_it_open_removes_it(fed, places):
    one = str(places / "one")
    for owner in ("me", "you", "who left"):
        fed.sources.add_root(one, (), fed.settings, owner)
    fed.sources.leave("who left")
    fed.settle()
    kept = fed.stores.root(one)
    fed.sources.remove_root(one, "me")
    fed.settle()
    assert fed.stores.root(one) is kept
    fed.sources.remove_root(one, "you")
    fed.settle()
    assert one not in fed.stores._roots


def test_without_a_place_to_write_there_is_no_history_and_no_index_but_drafts(fed, places, monkeypatch):
    (places / "file").write_text("")
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(places / "file" / "state"))
    monkeypatch.setenv("SPEC_COMPLETE_CACHE_DIR", str(places / "file" / "cache"))
    fed.settings = Settings()
    fed.feed.set_roots([str(places / "one")])
    fed.feed.opened(document(places / "one" / "a.py", TEXT))
    start = "x = 1\n\ndef helper(first, second):\n    return first_thing"
    assert fed.draft(start, places / "one").startswith("(second) + other_thing")
    assert "other_thing" not in fed.draft(start, places / "never opened")
    root = fed.stores.root(str(places / "one"))
    assert not root.history.enabled and root.indexer is None


def test_events_before_the_engine_is_there_are_kept_and_without_one_dropped(places):
    sources = Sources()
    sources.open(None, "a.py", "", ("x",))
    assert not sources._events.empty()
    sources.stop()
    for _ in range(5):
        sources.open(None, "a.py", "", ("x",))
    assert sources._events.qsize() <= 2


def test_the_process_that_indexes_starts_without_torch(tokenizer, places):
    (places / "tokenizer.json").write_text(tokenizer_definition(), encoding="utf-8")
    stores = RootedStores(tokenizer, places / "tokenizer.json")
    stores.add_root(str(places / "one"), [], Settings(index=True))
    indexer = stores.root(str(places / "one")).indexer
    stores.stop()
    code = (
        "import pickle, sys, cache.background_indexer\n"
        f"encode = pickle.loads({pickle.dumps(indexer._load_encode)!r})()\n"
        "assert encode('x = 1') and 'torch' not in sys.modules, 'torch was loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Typing:
    """A file that is open in the editor, and what is typed in it."""

    def __init__(self, fed, path, text=""):
        self.fed = fed
        self.document = document(path, text)
        fed.feed.opened(self.document)

    def replace(self, start, end, text):
        before = self.document.snapshot()
        span = {name: {"line": at[0], "character": at[1]} for name, at in (("start", start), ("end", end))}
        edit = self.document.apply({"range": span, "text": text}, "utf-16")
        self.fed.feed.edited(self.document, before, edit)

    def type(self, text):
        for character in text:
            last = self.document.line_count - 1
            at = (last, len(self.document.line(last)))
            self.replace(at, at, character)


def recorded(fed, root):
    fed.settle()
    return [(record.kind, record.text) for record in fed.stores.root(str(root)).history.records()]


def test_what_was_written_is_in_the_history_once_it_is_left_and_a_draft_in_the_next_session(
    fed, places, tokenizer
):
    one = places / "one"
    fed.feed.set_roots([str(one)])
    typing = Typing(fed, one / "a.py", "x = 1\n")
    typing.type("written_by_hand = some_function(argument)\n")
    assert recorded(fed, one) == []
    fed.feed.closed(typing.document)
    assert recorded(fed, one) == [("edit", "written_by_hand = some_function(argument)\n")]
    again = Fed(tokenizer, places)
    again.feed.set_roots([str(one)])
    assert again.draft("y = 2\nwritten_by_hand = some_function", one).startswith("(argument)")


def test_what_is_ignored_secret_or_not_wanted_is_not_in_the_history(fed, places):
    one = places / "one"
    (one / ".gitignore").write_text("*.local.py\nbuild/\n")
    fed.settings = Settings(index=False, secret_patterns=["hidden_*"])
    fed.feed.set_roots([str(one)])
    for name in ("a.local.py", "build/deep/a.py", "hidden_a.py", ".env", "node_modules/a.js", "a.csv"):
        typing = Typing(fed, one / name)
        typing.type("never_to_be_seen = again")
        fed.feed.accepted(typing.document, "never_to_be_accepted()")
        fed.feed.closed(typing.document)
    fed.settle()
    assert not any((places / "state").rglob("*.jsonl"))
    fed.settings = Settings(index=False, history=False)
    fed.feed.settings_changed()
    typing = Typing(fed, one / "new_file.py")
    typing.type("never_to_be_seen = again")
    fed.feed.closed(typing.document)
    fed.settle()
    assert not any((places / "state").rglob("*.jsonl"))


def test_edits_that_rest_are_recorded_by_the_sources_own_thread(places, tokenizer, monkeypatch):
    monkeypatch.setattr("lsp_server.settled_edits.QUIET_S", 0.2)
    fed = Fed(tokenizer, places)
    threading.Thread(target=fed.sources._run, args=(fed.stores,), daemon=True).start()
    fed.feed.set_roots([str(places / "one")])
    typing = Typing(fed, places / "one" / "a.py", "x = 1\n")
    typing.type("written_by_hand = 1")
    deadline = time.monotonic() + 20
    while not any((places / "state").rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    typing.type("\nand_more = 2")
    fed.sources.stop()
    deadline = time.monotonic() + 20
    while len(fed.stores.root(str(places / "one")).history.records()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    texts = [record.text for record in fed.stores.root(str(places / "one")).history.records()]
    assert texts == ["written_by_hand = 1", "written_by_hand = 1\nand_more = 2"]


def test_what_another_process_clears_is_in_no_more_drafts(places, tokenizer):
    one = places / "one"
    (places / "tokenizer.json").write_text(tokenizer._fast.to_str())
    (one / "lib.py").write_text(TEXT * 3)
    fed = Fed(tokenizer, places)
    fed.settings = Settings()
    fed.feed.set_roots([str(one)])
    opened = document(one / "a.py", "")
    fed.feed.opened(opened)
    fed.feed.accepted(opened, "return quite_special_name(argument_one, argument_two)")
    fed.settle()
    root = fed.stores.root(str(one))
    assert root.indexer.built.wait(100)
    root.indexer.stop()
    in_file, in_history = "x\n    return first_thing(second) +", "x\nreturn quite_special_name("
    assert fed.draft(in_file, one).startswith(" other_thing")
    assert fed.draft(in_history, one).startswith("argument_one")
    assert history.remove(history_dir(), str(one))
    for directory in indexes_of(index_dir(), one):
        index_builder.remove(directory)
    assert "other" not in fed.draft(in_file, one)
    assert "argument" not in fed.draft(in_history, one)


def test_looking_for_what_was_cleared_costs_a_request_next_to_nothing(fed, places):
    fed.feed.set_roots([str(places / "one")])
    fed.settle()
    root = fed.stores.root(str(places / "one"))
    begun = time.thread_time()
    for _ in range(200):
        root.refresh()
    assert (time.thread_time() - begun) / 200 < 0.0002


def test_a_query_does_not_wait_for_a_long_paste_or_deletion(fed, places):
    one = places / "one"
    fed.feed.set_roots([str(one)])
    typing = Typing(fed, one / "a.py", TEXT)
    fed.settle()
    held = []
    edit = fed.stores._hot.edit

    def timed(path, start, end, text):
        held.append((end - start, len(text)))
        return edit(path, start, end, text)

    fed.stores._hot.edit = timed
    long = "".join(f"value_{number} = number_{number * 7}(a, b)\n" for number in range(2000))
    typing.replace((1, 4), (1, 10), long)
    fed.settle()
    path = str(one / "a.py")
    assert fed.stores._hot.text(path) == typing.document.text
    typing.replace((1, 0), (1500, 3), "y" * 5000)
    fed.settle()
    assert fed.stores._hot.text(path) == typing.document.text
    assert fed.stores._hot.tokens(path) == fed.tokenizer.encode(typing.document.text)
    assert max(map(max, held)) <= SLICE and len(held) > 20
