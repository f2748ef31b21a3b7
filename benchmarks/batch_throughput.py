"""What a batch costs beside the calls it makes: tasks per second and memory, against a bare loop over the same calls.

    python -m benchmarks.batch_throughput                    # 1,000 tasks, one call of 47 ms each, in a child process
    python -m benchmarks.batch_throughput --tasks 10000      # memory, sampled while it works
    python -m benchmarks.batch_throughput --database memory  # without checkpoints on disk

The server is a process of its own. The bare loop sends the same bodies with httpx, as many at once, and does nothing
else; it is run before and after, and the better time counts.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from reflexion.batch import run_batch
from reflexion.graphs import Settings, open_reflexion
from reflexion.models import ConnectionSettings

DELAY_S = 0.047
SERVER = f"""
import asyncio, json, sys

REPLY = json.dumps({{
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{{"index": 0, "finish_reason": "stop", "message": {{"role": "assistant", "content": "Answer: 4"}}}}],
    "usage": {{"prompt_tokens": 50, "completion_tokens": 4, "total_tokens": 54}},
}}).encode()
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(REPLY)


async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            lines = [line.split(b":") for line in head.lower().split(b"\\r\\n")]
            length = next(int(line[1]) for line in lines if line[0] == b"content-length")
            await reader.readexactly(length)
            await asyncio.sleep({DELAY_S})
            writer.write(HEAD + REPLY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
"""


def rss_mb() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def bare(url: str, tasks: int, at_once: int) -> tuple[float, float]:
    """Seconds and seconds of CPU that the calls alone take."""
    body = {"model": "m", "messages": [{"role": "user", "content": "What is 2 + 2? " * 20}]}
    numbers = iter(range(tasks))
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def worker() -> None:
            for _ in numbers:
                (await client.post(f"{url}/chat/completions", json=body)).json()

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(worker() for _ in range(at_once)))
        return time.perf_counter() - started, time.process_time() - cpu


async def batch(url: str, tasks: int, at_once: int, database: str, folder: Path, *, out: bool, keep: bool) -> dict:
    source = folder / "in.jsonl"
    with source.open("w") as file:
        for number in range(tasks):
            file.write(json.dumps({"id": str(number), "task": f"{number}: what is 2 + 2?", "expect": "4"}) + "\n")
    where = "memory://" if database == "memory" else f"sqlite:///{folder / 'db.sqlite'}"
    settings = Settings(model="m", memory=False)
    connection = ConnectionSettings(base_url=url, api_key="x")
    memory: list[float] = []
    async with open_reflexion(settings, connection=connection, database_url=where) as agent:
        await agent.run("warm up", expect="4")
        gc.collect()
        before, cpu = rss_mb(), time.process_time()
        started = time.perf_counter()
        records = run_batch(
            source, agent, out=folder / "out.jsonl" if out else None, concurrency=at_once, keep_threads=keep
        )
        count = 0
        async for record in records:
            assert record.status == "passed", record
            count += 1
            if count % (tasks // 10) == 0:
                memory.append(round(rss_mb() - before, 1))
        seconds = time.perf_counter() - started
        cpu = time.process_time() - cpu
        size = await agent.persistence.size_bytes()
    assert count == tasks
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "cpu": cpu,
        "memory": memory,
        "peak_mb": peak,
        "before_mb": before,
        "database_mb": (size or 0) / 1e6,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--database", choices=["sqlite", "memory"], default="sqlite")
    parser.add_argument("--no-out", action="store_true", help="write no records")
    parser.add_argument("--keep-threads", action="store_true")
    parser.add_argument("--gc", action="store_true", help="let the garbage collector look less often")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.gc:
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        alone = [await bare(url, given.tasks, given.at_once)]
        with tempfile.TemporaryDirectory() as folder:
            work = batch(
                url,
                given.tasks,
                given.at_once,
                given.database,
                Path(folder),
                out=not given.no_out,
                keep=given.keep_threads,
            )
            if given.profile:
                profile = cProfile.Profile()
                profile.enable()
                found = await work
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            else:
                found = await work
        alone.append(await bare(url, given.tasks, given.at_once))
    finally:
        server.kill()
    ideal = given.tasks * DELAY_S / given.at_once
    seconds = found["seconds"]
    print(f"{given.tasks} tasks, {given.at_once} at once, {given.database}")
    loop_s, loop_cpu = map(min, zip(*alone, strict=True))
    print(f"ideal {ideal:.2f} s, bare loop {loop_s:.2f} s, batch {seconds:.2f} s: {seconds / loop_s:.1f} times")
    cpu, each = found["cpu"], 1000 / given.tasks
    print(f"CPU a task: bare loop {loop_cpu * each:.1f} ms, batch {cpu * each:.1f} ms: {cpu / loop_cpu:.1f} times")
    print(f"memory over the start, MB, at each tenth: {found['memory']}; peak {found['peak_mb']:.0f} MB of the process")
    print(f"database {found['database_mb']:.1f} MB")


if __name__ == "__main__":
    asyncio.run(main())
