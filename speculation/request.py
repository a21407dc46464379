"""What is asked of the completer and what it answers; plain data, importable without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from speculation.sampling import SamplingParameters

StopMode = Literal["line", "block", "none"]
FinishReason = Literal["end", "line", "block", "suffix", "length", "context", "deadline", "cancelled"]


@dataclass(slots=True)
class CompletionRequest:
    """One completion to make. Offsets count code points of ``text``, whose line ends are already ``\\n``."""

    text: str
    offset: int
    path: str = ""  # the document's identity and language hint; never opened
    root: str = ""
    language: str = ""
    anchor_line: int | None = None  # 0-based line where the forced middle begins; None: the cursor's line
    max_tokens: int = 64
    stop: StopMode = "block"
    speculation: bool = True
    sampling: SamplingParameters | None = None  # None: greedy
    forced_ids: Sequence[int] = ()  # generated ids of text that was typed through, kept as forced middle
    frozen_prompt: FrozenPrompt | None = None  # prefix and suffix as they were when the anchor was set
    previous_answer: Sequence[int] = ()  # ids of the rest of the last answer, when the user typed part of it
    context: Sequence[tuple[str, str]] = ()  # (path, text) of other files, most stable first
    prompt_only: bool = False  # only the prompt is evaluated, so that a later request finds its KV


@dataclass(frozen=True, slots=True)
class FrozenPrompt:
    """Prefix and suffix text kept while the anchor stays, so that editor-made changes cost no prefill."""

    prefix: str
    suffix: str


@dataclass(slots=True)
class CompletionMetrics:
    """Counts and milliseconds of one request. Stage times add up to ``total_ms`` with what the caller adds."""

    tokenise_ms: float = 0.0
    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    sample_ms: float = 0.0
    post_ms: float = 0.0
    total_ms: float = 0.0
    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    prompt_tokens: int = 0
    context_tokens: int = 0  # of the prompt tokens, those of other files
    reused_tokens: int = 0  # prompt tokens whose KV was already there
    new_tokens: int = 0  # prompt tokens evaluated now
    prefill_passes: int = 0
    forwards: int = 0  # decode passes
    drafted: int = 0
    accepted: int = 0
    committed: int = 0  # text tokens + end token + trimmed tokens
    text_tokens: int = 0
    end_tokens: int = 0
    trimmed_tokens: int = 0
    healed_tokens: int = 0  # of the text tokens, those that only spell what was already typed
    rejected_depth: dict[int, int] = field(
        default_factory=dict
    )  # accepted length of drafts that failed -> count
    drafted_by_source: dict[str, int] = field(default_factory=dict)
    accepted_by_source: dict[str, int] = field(default_factory=dict)
    # source -> match length -> [drafted, accepted] tokens: does longer agreement mean better drafts?
    by_match: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    passes_by_positions: dict[int, int] = field(default_factory=dict)  # positions of a decode pass -> passes
    anchor_line: int = 0
    oom_count: int = 0  # the device ran out of memory; the first time it goes on with less


class Generation(Protocol):
    """A completion in the making. One step is one forward pass; between steps it can be dropped at no cost."""

    finish_reason: FinishReason | None  # None while it goes on
    metrics: CompletionMetrics

    @property
    def text(self) -> str:
        """The completion so far, stop rules applied."""

    @property
    def token_ids(self) -> list[int]:
        """Committed ids of `text`, without end and trimmed tokens."""

    @property
    def middle_ids(self) -> list[int]:
        """Ids of what was typed since the anchor and of `text`: the forced ids of a request that goes on here."""

    def step(self) -> bool:
        """Makes one forward pass (a prefill chunk or a round); False when there is nothing left to do."""

    def cut(self, text: str) -> None:
        """Ends it with ``text``, a beginning of what is there: the answer at a deadline."""

    def close(self) -> None:
        """Lets go of the KV slot; what was computed stays in the KV store. Safe to call twice."""


class CompletionEngine(Protocol):
    """What the server and the command line hold: the model behind it is their business no more."""

    name: str  # engine name for telemetry: "eager", "int8", …
    model: str

    def start(self, request: CompletionRequest) -> Generation:
        """Begins a completion; cheap (tokenises the prompt, finds what the KV store still has)."""
