"""The completer: one loaded model that turns requests into generations.

It ties prompt, KV store, drafter and decoder together, and counts and times what each does. One worker owns it;
it knows no protocol and no editor.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from speculation.costs import CostTable
from speculation.decoder import Decoder
from speculation.draft import Drafter, DraftRequest, NoDrafter
from speculation.families import Markers, markers_for
from speculation.healing import Healing
from speculation.kv_store import KVStore, Lease
from speculation.prompt import Prompt, build_prompt
from speculation.request import CompletionMetrics, CompletionRequest, FinishReason
from speculation.sampling import SamplingParameters
from speculation.stop import StopRules
from speculation.text_end import TextEnd
from speculation.tokenizer import Tokenizer
from speculation.verifier.base import OutOfMemoryError, Verifier

PROMPT_TOKENS = 1024  # on a CPU a cold prompt costs about a millisecond and a half per token
PROMPT_TOKENS_GPU = 4096
LEAST_PROMPT_TOKENS = 128
MIDDLE_SHARE = 0.25  # of the budget, that typed text may exceed it by: it was evaluated as it was typed
KV_STORE_BYTES = 192 << 20


class Completer:
    """A model, its tokenizer, its KV store and a drafter. Implements `request.CompletionEngine`."""

    def __init__(
        self,
        verifier: Verifier,
        tokenizer: Tokenizer,
        *,
        drafter: Drafter | None = None,
        costs: CostTable | None = None,
        prompt_tokens: int | None = None,
        kv_bytes: int = KV_STORE_BYTES,
    ) -> None:
        """
        Args:
            costs: the verifier's measured t(m), shared with the drafter's policy.
            prompt_tokens: budget of a prompt; by default it follows the device.
        """
        capabilities = verifier.capabilities
        self.verifier = verifier
        self.tokenizer = tokenizer
        self.name = capabilities.engine
        self.model = capabilities.model
        self.markers: Markers = markers_for(tokenizer, capabilities.model)
        self.costs = costs if costs is not None else CostTable.flat()
        self.drafter: Drafter = drafter if drafter is not None else NoDrafter()
        self.prompt_tokens = prompt_tokens or (
            PROMPT_TOKENS if capabilities.device == "cpu" else PROMPT_TOKENS_GPU
        )
        self.store = KVStore(verifier, kv_bytes)

    def start(self, request: CompletionRequest) -> Completion:
        """Begins a completion: tokenises the prompt and finds what the KV store still has of it."""
        return Completion(self, request)

    def shrink(self) -> None:
        """The device ran out of memory: gives up every idle slot, and makes prompts half as long from now on."""
        self.store.free()
        self.prompt_tokens = max(LEAST_PROMPT_TOKENS, self.prompt_tokens // 2)


class Completion:
    """One generation. Implements `request.Generation`."""

    def __init__(self, completer: Completer, request: CompletionRequest) -> None:
        self.metrics = CompletionMetrics()
        self.finish_reason: FinishReason | None = None
        self._completer = completer
        self._verifier = completer.verifier
        self._request = request
        self._started = perf_counter()
        self._first_text_at = 0.0
        self._begin()

    def _begin(self) -> None:
        """Builds the prompt and takes a slot; again with a shorter prompt when the device is out of memory."""
        began = perf_counter()
        completer, request, metrics = self._completer, self._request, self.metrics
        capabilities = self._verifier.capabilities
        max_tokens = max(1, min(request.max_tokens, capabilities.max_context // 2))
        capacity = capabilities.max_context - max_tokens
        budget = max(64, min(completer.prompt_tokens, capacity))
        most = min(capacity, budget + int(budget * MIDDLE_SHARE))
        self.prompt: Prompt = build_prompt(request, completer.tokenizer, completer.markers, budget, most)
        tokenised = perf_counter()
        drafter = completer.drafter if request.speculation and capabilities.croppable else NoDrafter()
        drafter.start(_draft_request(request, self.prompt, capabilities.vocab_size))
        prepared = perf_counter()
        self._lease: Lease | None = completer.store.acquire(self.prompt.tokens, self.prompt.anchored)
        self._prefilled = self._lease.reused
        self._stop = StopRules(request.stop, completer.markers.end_ids, max_tokens, self.prompt.surroundings)
        end = TextEnd(
            self.prompt.tokens,
            sampling=request.sampling or SamplingParameters(),
            stop=self._stop,
            healing=Healing(
                completer.tokenizer,
                self.prompt.required,
                capabilities.vocab_size,
                completer.markers.end_ids,
            ),
            tokenizer=completer.tokenizer,
            first_position=len(self.prompt.middle),
        )
        self.decoder = Decoder(self._verifier, self._lease.slot, end, drafter, metrics)
        metrics.prompt_tokens = len(self.prompt.tokens)
        metrics.context_tokens = len(self.prompt.context)
        metrics.anchor_line = self.prompt.anchor_line
        metrics.reused_tokens = self._lease.reused
        metrics.new_tokens = metrics.prompt_tokens - metrics.reused_tokens
        metrics.tokenise_ms += (tokenised - began) * 1e3
        metrics.draft_ms += (prepared - tokenised) * 1e3
        metrics.prefill_ms += (perf_counter() - prepared) * 1e3

    @property
    def text(self) -> str:
        """The completion so far, stop rules applied."""
        return self._stop.text

    @property
    def token_ids(self) -> list[int]:
        """Committed ids of the text; the first of them may only spell what was typed (token healing)."""
        return self.decoder.end.committed[: self._stop.kept_tokens()]

    @property
    def middle_ids(self) -> list[int]:
        """Ids of everything since the anchor: what was typed, then the text."""
        return [*self.prompt.middle, *self.token_ids]

    def step(self) -> bool:
        """One forward pass; False when the completion is finished, with its slot given back."""
        if self.finish_reason is not None or self._lease is None:
            return False
        try:
            if self._prefilled < len(self.prompt.tokens) - 1:
                self._prefill_chunk()
            elif self._request.prompt_only:
                self.close("end")
            else:
                self._round()
        except (OutOfMemoryError, MemoryError) as error:
            self._retry_with_less(error)
        except BaseException:
            self.close()
            raise
        return self.finish_reason is None

    def _retry_with_less(self, error: Exception) -> None:
        """Frees what can be freed and goes on, from the start with a shorter prompt if nothing is committed yet;
        once. The second time the error is the caller's."""
        self.metrics.oom_count += 1
        if self.metrics.oom_count > 1:
            self.close()
            raise error
        if self.decoder.end.committed:
            self._completer.store.free()
            return
        if self._lease is not None:
            self._completer.store.release(self._lease)
        self._completer.shrink()
        self._begin()

    def run(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Steps until finished, or until ``go_on`` says no (asked between forward passes)."""
        while go_on() and self.step():
            pass

    def cut(self, text: str) -> None:
        """Keeps only ``text``, a beginning of the completion's; the tokens past it count as trimmed."""
        self._stop.cut(len(text.encode()), "deadline")
        self.close("deadline")

    def close(self, reason: FinishReason = "cancelled") -> None:
        """Gives the slot back and settles the metrics; what was computed stays in the KV store."""
        if self._lease is not None:
            self._completer.store.release(self._lease)
            self._lease = None
        self.finish_reason = self.finish_reason or reason
        self._settle()

    def _prefill_chunk(self) -> None:
        assert self._lease is not None
        began = perf_counter()
        chunk = self.prompt.tokens[self._prefilled : -1][: self._verifier.capabilities.prefill_chunk]
        self._verifier.prefill(self._lease.slot, chunk)
        self._completer.store.advance(self._lease, chunk)
        self._prefilled += len(chunk)
        self.metrics.prefill_passes += 1
        self.metrics.prefill_ms += (perf_counter() - began) * 1e3

    def _round(self) -> None:
        assert self._lease is not None
        pending = self.decoder.end.last_token
        committed = self.decoder.round()
        self._completer.store.advance(self._lease, [pending, *committed[:-1]])
        if not self._first_text_at:
            self._first_text_at = perf_counter()
        if self.decoder.done:
            self.finish_reason = self._stop.reason or "context"
            self.close()
        else:
            self._settle()

    def _settle(self) -> None:
        now = perf_counter()
        metrics, end = self.metrics, self.decoder.end
        metrics.end_tokens = int(self._stop.reason == "end")
        metrics.text_tokens = self._stop.kept_tokens()
        metrics.trimmed_tokens = metrics.committed - metrics.text_tokens - metrics.end_tokens
        metrics.healed_tokens = end.healed
        metrics.total_ms = (now - self._started) * 1e3
        if self._first_text_at:
            metrics.ttft_ms = (self._first_text_at - self._started) * 1e3
            later = metrics.committed - 1
            metrics.tpot_ms = (now - self._first_text_at) * 1e3 / later if later > 0 else 0.0


def _draft_request(request: CompletionRequest, prompt: Prompt, vocab_size: int) -> DraftRequest:
    return DraftRequest(
        prefix=prompt.prefix,
        middle=prompt.middle,
        suffix=prompt.suffix,
        context=prompt.context,
        document=request.path,
        root=request.root,
        vocab_size=vocab_size,
        previous_answer=request.previous_answer,
    )
