"""Requests that are let go together: what is done while some of them still run."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from bench.records import Timeouts
from bench.run.progress import Progress
from bench.run.wave import Released, release
from bench.wire.client import Client, Prepared, Raw
from bench.wire.exchange import SLICE_BESIDE
from bench.wire.recorder import Recorder
from bench.wire.stream import StreamDecoder

PIECES = 3 * SLICE_BESIDE // 100  # some slices of events, each of about 100 bytes


def event(number: int) -> bytes:
    choice = {"index": 0, "delta": {"content": f" {number}"}, "finish_reason": None}
    data = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def answered() -> Raw:
    """An answer that has come and of which nothing is decoded."""
    recorder = Recorder(1 << 20)
    recorder.start(0)
    recorder.begin(1, 200, chunked=True)
    for number in range(PIECES):
        recorder.add(1000 + number, event(number))
    recorder.add(9_000_000, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    recorder.over.set_result(None)
    return Raw(
        started_at="",
        sent_ns=0,
        connect_ns=None,
        uploaded_ns=None,
        headers_ns=1,
        ended_ns=9_000_000,
        status=200,
        headers={},
        recorder=recorder,
        decoder=StreamDecoder("chat"),
        failure=None,
    )


class Servers:
    """Answers that come when the test says so."""

    def __init__(self, count: int) -> None:
        gate = asyncio.Lock()
        self.ends = [asyncio.Event() for _ in range(count)]
        self.raws = [answered() for _ in range(count)]
        self.prepared = [
            Prepared(
                request=cast(Any, None),
                url=str(place),
                body=b"",
                endpoint="chat",
                timeouts=Timeouts(),
                first_token_s=1.0,
                limit=1,
                secrets=(),
                gate=gate,
            )
            for place in range(count)
        ]

    async def exchange(self, prepared: Prepared, **_: Any) -> Raw:
        place = int(prepared.url)
        try:
            await self.ends[place].wait()
        except asyncio.CancelledError:  # as the client does: what has come by then is an answer
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        return self.raws[place]

    def release(self) -> asyncio.Task[Released]:
        work = release(cast(Client, self), self.prepared, Progress(), keep_cancelled=True)
        return asyncio.create_task(work)


async def until_decoded(raw: Raw) -> None:
    async with asyncio.timeout(30):
        while not raw.recorder.is_empty:
            await asyncio.sleep(0)


TEXT = "".join(f" {number}" for number in range(PIECES))


def test_an_answer_is_decoded_while_others_still_come_and_the_last_one_is_left_to_its_record() -> None:
    async def main() -> None:
        servers = Servers(3)
        wave = servers.release()
        servers.ends[1].set()
        await until_decoded(servers.raws[1])
        assert not servers.raws[0].recorder.is_empty and not wave.done()
        servers.ends[0].set()
        await until_decoded(servers.raws[0])
        servers.ends[2].set()
        out = await wave
        assert out.raws == servers.raws and not out.interrupted
        assert not servers.raws[2].recorder.is_empty
        assert [raw.decoder.finish().text for raw in out.raws[:2]] == [TEXT, TEXT]

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(8))
def test_ctrl_c_while_an_answer_is_decoded_loses_none_of_it(steps: int) -> None:
    async def main() -> None:
        servers = Servers(2)
        wave = servers.release()
        servers.ends[0].set()
        for _ in range(steps + 1):
            await asyncio.sleep(0)
        wave.cancel()
        out = await wave
        assert out.interrupted
        first = servers.raws[0]
        for at_ns, data in first.recorder.take():  # as `finish` does
            first.decoder.feed(at_ns, data)
        assert first.decoder.finish().text == TEXT

    asyncio.run(main())
