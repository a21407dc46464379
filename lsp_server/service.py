"""The completion service: one worker thread that owns the engine, for all documents of all clients.

Jobs are served by priority, then in order. Between forward passes a job can be cancelled or paused; a paused
one goes on where it was unless another job has used the engine since. Results are reported on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from lsp_server.status import Status
from speculation.request import (
    CompletionEngine,
    CompletionMetrics,
    CompletionRequest,
    FinishReason,
    Generation,
)

MOST_HELD = 2  # generations laid aside

Progress = Callable[[str, float], None]
EngineLoader = Callable[[Progress], CompletionEngine]


class Priority(IntEnum):
    """Lower goes first; a running job gives way to a lower one."""

    ASKED = 0  # someone is waiting
    BACKGROUND = 1  # answered at the deadline, going on
    PREFETCH = 2  # as if accepted
    IDLE = 3  # what later requests are to find done


@dataclass(frozen=True, slots=True)
class Update:
    """How far a job is."""

    text: str
    token_ids: tuple[int, ...]
    middle_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    metrics: CompletionMetrics | None
    error: BaseException | None = None
    started_s: float = 0.0  # when the worker took it up, by `time.perf_counter`

    @property
    def done(self) -> bool:
        return self.finish_reason is not None or self.error is not None


class Job:
    """One generation to make. Flags are set on the event loop and read between forward passes."""

    def __init__(
        self,
        build: Callable[[], CompletionRequest],
        priority: Priority,
        report: Callable[[Update], None],
        stops: Callable[[str], bool] | None = None,
        cut: Callable[[str], str] | None = None,
    ) -> None:
        """
        Args:
            build: makes the request; called on the worker thread.
            report: gets every `Update` that matters, on the event loop; some steps may be skipped.
            stops: whether a text is complete by the caller's own rules; called on the worker thread.
            cut: the beginning of a text to end with now, or "" to go on; called on the worker thread.
        """
        self.build = build
        self.priority = priority
        self.report = report
        self.stops = stops
        self.cut = cut
        self.cancelled = False
        self.paused = False
        self.started_s = 0.0  # when the worker first took it up
        self._latest: Update | None = None

    def cancel(self) -> None:
        """No further forward pass, nothing more is reported."""
        self.cancelled = True

    def pause(self) -> None:
        """No further forward pass until it is submitted again."""
        self.paused = True


class CompletionService:
    """Owns the worker. All methods but `_run` and below are for the event loop."""

    def __init__(self, engine: CompletionEngine | EngineLoader) -> None:
        self._source = engine
        self.engine: CompletionEngine | None = None
        self.status = Status("loading", "The model has not been asked for yet.", progress=0.0)
        self._listeners: list[Callable[[Status], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._condition = threading.Condition()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._held: dict[Job, Generation] = {}  # laid aside, oldest first
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._load_error: BaseException | None = None  # no job will ever be served

    def start(self) -> None:
        """Starts the worker on the running loop; it loads the engine first.

        OpenMP gives each thread that computes a team of its own, and where teams outnumber the cores they sleep between
        operators: passes of a second thread take longer. So one thread does both.
        """
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Ends the worker after the forward pass it is in; gives up waiting after ``timeout_s``."""
        with self._condition:
            self._stopping = True
            self._waiting.clear()
            if self._running is not None:
                self._running.cancel()
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def listen(self, listener: Callable[[Status], None]) -> Callable[[], None]:
        """Calls ``listener`` at every change of the status; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def ready(self) -> bool:
        return self.engine is not None

    def submit(self, job: Job) -> None:
        """Queues a job, or resumes a paused one; where there is no engine it fails."""
        with self._condition:
            if self._load_error is not None:
                self._report(job, _failed(self._load_error))
                return
            job.paused = False
            if job not in self._waiting and job is not self._running:
                self._waiting.append(job)
            self._condition.notify()

    def set_priority(self, job: Job, priority: Priority) -> None:
        """Changes how urgent a job is, waiting or running."""
        job.priority = priority

    def _run(self) -> None:
        if not self._load():
            return
        while (job := self._next()) is not None:
            self._serve(job)
            with self._condition:
                self._running = None

    def _load(self) -> bool:
        try:
            if callable(self._source):
                engine = self._source(
                    lambda message, part: self._set_status(Status("loading", message, progress=part))
                )
            else:
                engine = self._source
        except Exception as error:
            self._set_status(Status("error", f"The model could not be loaded: {error}"))
            with self._condition:
                self._load_error = error
                waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._report(job, _failed(error))
            return False
        self.engine = engine
        self._set_status(Status("ready", f"{engine.model} ({engine.name})"))
        return True

    def _next(self) -> Job | None:
        with self._condition:
            while True:
                if self._stopping:
                    return None
                self._waiting = [job for job in self._waiting if not job.cancelled and not job.paused]
                if self._waiting:
                    job = min(self._waiting, key=lambda job: job.priority)
                    self._waiting.remove(job)
                    self._running = job
                    return job
                self._condition.wait()

    def _serve(self, job: Job) -> None:
        assert self.engine is not None
        started_s = job.started_s = job.started_s or time.perf_counter()
        try:
            generation = self._held.pop(job, None)
            self._drop_held()
            if generation is None:
                generation = self.engine.start(job.build())
            while not job.cancelled:
                if (job.paused or self._outranked(job)) and self._park(job, generation):
                    return
                more = generation.step()
                if more and job.cut is not None and (text := job.cut(generation.text)):
                    generation.cut(text)
                    more = False
                reason = generation.finish_reason
                if more and job.stops is not None and job.stops(generation.text):
                    more, reason = False, "suffix"
                if not more and reason is None:
                    reason = "end"
                ids, middle = tuple(generation.token_ids), tuple(generation.middle_ids)
                self._report(
                    job, Update(generation.text, ids, middle, reason, generation.metrics, None, started_s)
                )
                if not more:
                    break
            generation.close()
        except Exception as error:
            self._report(job, _failed(error, started_s))

    def _drop_held(self) -> None:
        """Gives back what cancelled jobs, and all but the latest of the others, still hold."""
        kept = [job for job in self._held if not job.cancelled][-MOST_HELD:]
        for job in [job for job in self._held if job not in kept]:
            self._held.pop(job).close()

    def _outranked(self, job: Job) -> bool:
        return any(
            other.priority < job.priority and not other.cancelled and not other.paused
            for other in self._waiting
        )

    def _park(self, job: Job, generation: Generation) -> bool:
        """Lays a job aside; False when it was resumed in the meantime."""
        with self._condition:
            if not job.paused and not self._outranked(job):
                return False
            self._held[job] = generation
            self._running = None
            if not job.paused:
                self._waiting.append(job)
            return True

    def _report(self, job: Job, update: Update) -> None:
        with self._condition:
            scheduled, job._latest = job._latest, update
        if scheduled is None:
            self._on_loop(lambda: self._deliver(job))

    def _deliver(self, job: Job) -> None:
        with self._condition:
            update, job._latest = job._latest, None
        if update is not None and not job.cancelled:
            job.report(update)

    def _set_status(self, status: Status) -> None:
        def change() -> None:
            self.status = status
            for listener in list(self._listeners):
                listener(status)

        self._on_loop(change)

    def _on_loop(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: the process is ending
            self._stopping = True


def _failed(error: BaseException, started_s: float = 0.0) -> Update:
    return Update("", (), (), None, None, error, started_s)
