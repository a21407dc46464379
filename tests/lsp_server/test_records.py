"""What a request is charged: nothing that was spent before it came, nothing that it did not wait for."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from lsp_server.items import Offer
from lsp_server.records import Recorder, Source
from lsp_server.telemetry import unattributed_ms
from speculation.request import CompletionMetrics
from speculation.verifier.base import OutOfMemoryError


async def recorded(metrics, received_ms, joined=None, done=True, error=None):
    """The record of a request that came ``received_ms`` after its generation began and is answered now."""
    now = time.perf_counter()
    started = now - 1.0
    plan = SimpleNamespace(speculation=True)
    flight = SimpleNamespace(metrics=metrics, started_s=started, done=done, error=error, plan=plan)
    ticket = SimpleNamespace(
        id="1",
        uri="a.py",
        automatic=True,
        language="python",
        received_s=started + received_ms / 1000,
        joined=joined,
    )
    records = []
    writer = SimpleNamespace(write=lambda record, keep: records.append(record))
    Recorder(writer, lambda record: None).answered(
        ticket, [Offer("1", "x")], Source("continued", flight), now
    )
    assert not records  # made behind the answer
    await asyncio.sleep(0)
    return records[0]


async def test_a_pass_that_had_begun_before_it_was_joined_is_charged_from_then_on():
    joined = CompletionMetrics(prefill_ms=100.0)
    now = CompletionMetrics(prefill_ms=900.0)  # one pass of 800 ms, of which 200 were over
    record = await recorded(now, received_ms=300.0, joined=joined)
    assert abs(unattributed_ms(record)) < 1
    assert record["prefill_ms"] == pytest.approx(700.0, abs=5)


async def test_the_first_token_is_timed_from_the_receipt():
    metrics = CompletionMetrics(ttft_ms=800.0, verify_ms=990.0, committed=2, forwards=2)
    earlier = await recorded(metrics, received_ms=-50.0)
    assert earlier["ttft_ms"] == pytest.approx(850.0, abs=1)
    later = await recorded(metrics, received_ms=600.0, joined=CompletionMetrics())
    assert later["ttft_ms"] == pytest.approx(200.0, abs=1)
    assert later["ttft_ms"] <= later["total_ms"]


async def test_running_out_of_memory_counts_whether_it_was_got_over_or_not():
    over = await recorded(CompletionMetrics(oom_count=1), received_ms=0.0)
    failed = await recorded(None, received_ms=0.0, error=OutOfMemoryError("no room"))
    assert (over["oom_count"], failed["oom_count"]) == (1, 1)


async def test_a_generation_that_goes_on_does_not_change_the_record():
    metrics = CompletionMetrics(verify_ms=100.0, committed=3, forwards=2, passes_by_positions={1: 2})
    records = []

    async def answer():
        records.append(await recorded(metrics, received_ms=0.0, done=False))

    task = asyncio.ensure_future(answer())
    await asyncio.sleep(0)
    metrics.committed, metrics.passes_by_positions[1] = 9, 9
    await task
    assert records[0]["committed"] == 3 and records[0]["passes_by_positions"] == {"1": 2}
