"""The worker: one thread, priorities, pauses, and nothing after a cancellation."""

import asyncio

import pytest
from lsp_testkit.engine import ScriptedEngine, says

from lsp_server.service import CompletionService, Job, Priority
from speculation.request import CompletionRequest


class Collected:
    """A job's updates."""

    def __init__(self, text="x", priority=Priority.ASKED):
        self.updates = []
        self.done = asyncio.Event()
        self.job = Job(lambda: CompletionRequest(text, len(text)), priority, self.take)

    def take(self, update):
        self.updates.append(update)
        if update.done:
            self.done.set()

    async def wait(self):
        await asyncio.wait_for(self.done.wait(), 10)
        return self.updates[-1]


@pytest.fixture
async def service():
    made = []

    def start(engine):
        made.append(CompletionService(engine))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def ready(service):
    await until(lambda: service.ready)


async def test_jobs_are_served_by_one_thread_and_report_their_text(service):
    engine = ScriptedEngine(says("hello world"))
    served = service(engine)
    await ready(served)
    jobs = [Collected() for _ in range(3)]
    for one in jobs:
        served.submit(one.job)
    assert [(await one.wait()).text for one in jobs] == ["hello world"] * 3
    assert len(engine.threads) == 1


async def test_what_is_asked_for_goes_before_what_is_prepared_and_the_latter_goes_on(service):
    engine = ScriptedEngine(says("0123456789" * 4), token_ms=10)
    served = service(engine)
    await ready(served)
    prepared, asked = Collected(priority=Priority.PREFETCH), Collected()
    served.submit(prepared.job)
    await asyncio.sleep(0.04)
    served.submit(asked.job)
    await asked.wait()
    assert not prepared.done.is_set()
    assert (await prepared.wait()).text == "0123456789" * 4
    assert engine.count("start") == 2  # it was laid aside, not begun again


async def test_a_paused_job_makes_no_pass_until_it_is_resumed(service):
    engine = ScriptedEngine(says("0123456789" * 4), token_ms=10)
    served = service(engine)
    await ready(served)
    one = Collected()
    served.submit(one.job)
    await asyncio.sleep(0.05)
    one.job.pause()
    await asyncio.sleep(0.03)
    steps = engine.count("step")
    await asyncio.sleep(0.06)
    assert engine.count("step") == steps
    served.submit(one.job)
    assert (await one.wait()).text == "0123456789" * 4
    assert engine.count("start") == 1


async def test_pausing_and_resuming_at_any_moment_loses_nothing(service):
    engine = ScriptedEngine(says("ab" * 40, piece=1), token_ms=0.5)
    served = service(engine)
    await ready(served)
    one = Collected()
    served.submit(one.job)
    for number in range(60):
        one.job.pause()
        if number % 3:
            await asyncio.sleep(0.0007 * (number % 5))
        served.submit(one.job)
    assert (await one.wait()).text == "ab" * 40


async def test_a_cancelled_job_reports_nothing_more_and_is_closed(service):
    engine = ScriptedEngine(says("0123456789" * 4), token_ms=10)
    served = service(engine)
    await ready(served)
    one, other = Collected(), Collected()
    served.submit(one.job)
    await asyncio.sleep(0.05)
    one.job.cancel()
    told = len(one.updates)
    served.submit(other.job)
    await other.wait()
    assert len(one.updates) == told
    assert engine.count("start") == 2
    await until(lambda: engine.count("close") == 2)  # the last one is closed after its text is reported


async def test_a_failing_engine_is_reported_and_the_worker_lives_on(service):
    engine = ScriptedEngine(says("fine"), fails="start")
    served = service(engine)
    await ready(served)
    one = Collected()
    served.submit(one.job)
    assert isinstance((await one.wait()).error, RuntimeError)
    engine.fails_in_start = False
    two = Collected()
    served.submit(two.job)
    assert (await two.wait()).text == "fine"


async def test_loading_tells_its_progress_and_its_failure(service):
    def load(progress):
        progress("half", 0.5)
        raise OSError("no space left")

    statuses = []
    served = CompletionService(load)
    served.listen(statuses.append)
    served.start()
    while not statuses or statuses[-1].kind != "error":
        await asyncio.sleep(0.005)
    assert [status.kind for status in statuses] == ["loading", "error"]
    assert statuses[0].progress == 0.5 and "no space left" in statuses[1].message
    served.stop()
