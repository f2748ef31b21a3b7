"""One budget that workers share through a real PostgreSQL or Redis: exact under concurrency, whoever dies."""

import asyncio
import itertools
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from exchanges import ended, exchange

from reflexion.models.budget import Budget
from reflexion.models.ends import BudgetExhausted, DeadlineExceeded
from reflexion.models.errors import ModelError
from reflexion.models.postgres_budget import PostgresBudgets
from reflexion.models.redis_budget import RedisBudgets
from reflexion.models.shared_budget import SharedBudget
from reflexion.models.usage import Usage

# It says what it has paid before it settles, and dies in between every so often, as it may do before it has paid.
WORKER = """
import asyncio, os, random, sys
from decimal import Decimal
from exchanges import ended, exchange
from reflexion.models.budget import Budget
from reflexion.models.ends import BudgetExhausted
from reflexion.models.postgres_budget import PostgresBudgets
from reflexion.models.redis_budget import RedisBudgets
from reflexion.models.shared_budget import SharedBudget

kind, url, prefix, seed = sys.argv[1:]
store = RedisBudgets(url, prefix=prefix, patience_s=60) if kind == "redis" else PostgresBudgets(url)
chance = random.Random(int(seed))
calls = 0

async def call(shared):
    global calls
    request = exchange(prompt=20, reply=40)
    async with Budget(parent=shared).around(request):
        await asyncio.sleep(0)
        calls += 1
        if chance.random() < 0.03 or (int(seed) < 4 and calls == 5):
            os._exit(9)
        used = chance.randint(0, 40)
        print("paid", 20 + used, flush=True)
        if chance.random() < 0.03:
            os._exit(9)
        ended(request, reply=used)

async def main():
    shared = SharedBudget("all", store, usd=Decimal("4.005"))
    while True:
        ends = await asyncio.gather(*(call(shared) for _ in range(3)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BudgetExhausted):
                print("over", flush=True)
                return
            if end:
                raise end

asyncio.run(main())
"""


@pytest.fixture(params=["redis", "postgresql"])
def kind(request):
    return request.param


@pytest.fixture
def where(kind, request):
    """URL and prefix."""
    if kind == "redis":
        return request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return request.getfixturevalue("postgres_url"), ""


@pytest.fixture
async def store(kind, where):
    url, prefix = where
    store = RedisBudgets(url, prefix=prefix, patience_s=60) if kind == "redis" else PostgresBudgets(url)
    yield store
    await store.aclose()


async def pay(budget, usd: str, *, reserve: str | None = None, run=None):
    """A call that costs so much, of a reservation of the same size unless said otherwise."""
    one = Decimal("0.01")
    request = exchange(prompt=0, reply=int(Decimal(reserve or usd) / one), usd=str(one))
    async with budget.around(request):
        if run:
            await run()
        ended(request, prompt=0, reply=int(Decimal(usd) / one))
    return request


async def usd(budget) -> tuple[Decimal, Decimal]:
    spent, reserved = await budget.look()
    return spent.usd, reserved.usd


@pytest.mark.slow
async def test_four_workers_that_die_at_random_never_spend_more_than_there_is(kind, where, store):
    seeds = itertools.count()

    def work(seed):
        done = subprocess.run(
            [sys.executable, "-c", WORKER, kind, *where, str(seed)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode in {0, 9}, done.stderr
        return done.stdout.splitlines()

    async def replaced_until_it_is_used_up():
        said = []
        while "over" not in said:
            said += await asyncio.to_thread(work, next(seeds))
        return said

    outputs = await asyncio.gather(*(replaced_until_it_is_used_up() for _ in range(4)))
    paid = [int(line.split()[1]) for said in outputs for line in said if line.startswith("paid")]
    budget = SharedBudget("all", store, usd=Decimal("4.005"))
    spent, reserved = await usd(budget)
    assert sum(paid) * Decimal("0.001") <= spent + reserved <= budget.limit.usd
    # A call reserves 0.06, and two that were in flight beside the last refusal may have used less.
    assert budget.limit.usd - spent - reserved < Decimal("0.06") + 2 * Decimal("0.04"), "something was left"
    assert next(seeds) > 4, "nobody died"


async def test_of_parallel_calls_that_do_not_fit_none_goes_out(store):
    budget = SharedBudget("batch", store, usd=Decimal(1))
    await pay(budget, "0.95")
    results = await asyncio.gather(*(pay(budget, "0.09") for _ in range(8)), return_exceptions=True)
    assert {str(error) for error in results} == {
        "budget 'batch' of 1 USD: 0.95 spent, 0 reserved, the next call needs 0.09"
    }
    assert all(isinstance(error, BudgetExhausted) for error in results)
    await pay(budget, "0.05")
    assert await usd(budget) == (1, 0)


async def test_parallel_calls_of_several_workers_do_not_pass_the_same_check(store):
    workers = [SharedBudget("batch", store, usd=Decimal("0.5")) for _ in range(4)]
    results = await asyncio.gather(*(pay(workers[n % 4], "0.10") for n in range(20)), return_exceptions=True)
    assert sum(isinstance(result, BudgetExhausted) for result in results) == 15
    assert await usd(workers[0]) == (Decimal("0.5"), 0)


async def test_cancelled_calls_leave_no_hold(store):
    budget = SharedBudget("batch", store, usd=Decimal(1))
    sent = asyncio.Semaphore(0)

    async def stay():
        sent.release()
        await asyncio.Event().wait()

    calls = [asyncio.create_task(pay(budget, "0.05", run=stay)) for _ in range(20)]
    for _ in calls:
        await sent.acquire()
    assert await usd(budget) == (0, 1)
    # Others are cancelled while they ask.
    asking = [asyncio.create_task(pay(budget, "0.05")) for _ in range(5)]
    await asyncio.sleep(0)
    for call in [*calls, *asking]:
        call.cancel()
    await asyncio.wait([*calls, *asking])
    while budget._finishing:
        await asyncio.wait(budget._finishing)
    assert await usd(budget) == (0, 0)
    await pay(budget, "1.00")


async def test_a_reply_that_uses_twice_its_reservation_is_booked_as_it_was(store):
    budget = SharedBudget("batch", store, usd=Decimal(1))
    await pay(budget, "0.95")
    await pay(budget, "0.10", reserve="0.05")
    assert await usd(budget) == (Decimal("1.05"), 0)
    with pytest.raises(BudgetExhausted, match=r"1\.05 spent"):
        await pay(budget, "0.01")


@pytest.mark.parametrize(("limits", "fits"), [({"tokens": 100}, 2), ({"requests": 3}, 3), ({"tokens": 99}, 1)])
async def test_tokens_and_requests_are_limited_too(store, limits, fits):
    budget = SharedBudget("batch", store, **limits)
    ends = [await asyncio.gather(pay(budget, "0.50"), return_exceptions=True) for _ in range(5)]
    assert sum(not isinstance(end, Exception) for (end,) in ends) == fits
    assert budget.limit.usd is None


async def test_a_reply_is_shortened_to_what_is_left(store):
    run = Budget(parent=SharedBudget("batch", store, tokens=1000))
    request = exchange(prompt=100, reply=8192)
    async with run.around(request):
        assert request.reply_tokens == 900
        ended(request, reply=850)
    assert run.left() == {"tokens": 50}
    with pytest.raises(BudgetExhausted, match="budget 'batch' of 1000 tokens: 950 spent, 0 reserved"):
        async with run.around(exchange(prompt=0, reply=8192)):
            pytest.fail("it does not fit")
    assert (run.used.requests, run.reserved.requests) == (1, 0)


async def test_what_a_dead_worker_had_set_aside_counts_and_what_it_really_paid_takes_its_place(store):
    dead = SharedBudget("batch", store, usd=Decimal(1), lease_s=0.0)
    alive = SharedBudget("batch", store, usd=Decimal(1), patient=True)
    request = exchange(prompt=0, reply=60, usd="0.01")
    surrounding = dead.around(request)
    await surrounding.__aenter__()
    dead._renewing.cancel()
    assert await usd(alive) == (Decimal("0.6"), 0)
    with pytest.raises(BudgetExhausted, match=r"0.6 spent, 0 reserved, the next call needs 0.41"):
        await pay(alive, "0.41")
    line = ended(request, prompt=0, reply=20) | {"id": request.id}
    for _ in range(2):
        await alive.recover([line, line | {"id": "another", "outcome": "lost"}])
        assert await usd(alive) == (Decimal("0.2"), 0)
    await surrounding.__aexit__(None, None, None)
    assert await usd(alive) == (Decimal("0.2"), 0)


async def test_a_patient_call_waits_for_those_in_flight_and_not_for_ever(store):
    budget = SharedBudget("batch", store, usd=Decimal(1), patient=True)
    refused = asyncio.Event()
    ask = store.reserve

    async def told(*about):
        books = await ask(*about)
        if not books.granted:
            refused.set()
        return books

    store.reserve = told
    waiting = []

    async def meanwhile():
        waiting.append(asyncio.create_task(pay(budget, "0.90")))
        await refused.wait()

    await pay(budget, "0.10", reserve="1.00", run=meanwhile)
    await waiting[0]
    assert await usd(budget) == (1, 0)

    late = SharedBudget("late", store, usd=Decimal(1), patient=True)

    async def in_time():
        request = exchange(prompt=0, reply=50, usd="0.01", deadline=10.0, clock=iter([5.0, 11.0]).__next__)
        with pytest.raises(DeadlineExceeded, match="wait for room in budget 'late'"):
            async with late.around(request):
                pytest.fail("it does not fit")

    await pay(late, "0.60", run=in_time)


async def test_a_living_worker_keeps_its_hold(store):
    renewed = asyncio.Event()
    renew = store.renew

    async def told(*about):
        await renew(*about)
        renewed.set()

    store.renew = told
    budget = SharedBudget("batch", store, usd=Decimal(1), lease_s=0.3)

    async def long():
        await asyncio.wait_for(renewed.wait(), 60)
        assert (await budget.look())[0].usd + (await budget.look())[1].usd == 1

    await pay(budget, "0.50", reserve="1.00", run=long)
    assert await usd(budget) == (Decimal("0.5"), 0)


async def test_a_price_that_is_unknown_is_no_price(store):
    budget = SharedBudget("batch", store, usd=Decimal(1))
    with pytest.raises(BudgetExhausted, match="the model's price is unknown"):
        async with budget.around(exchange(usd=None)):
            pytest.fail("sent")


async def test_fractions_of_a_billionth_are_never_lost_in_the_callers_favour(store):
    budget = SharedBudget("batch", store, usd=Decimal("0.0000000039"))
    request = exchange(prompt=0, reply=1, usd="0.0000000011")
    async with budget.around(request):
        ended(request, prompt=0, reply=1)
    assert await usd(budget) == (Decimal("0.000000002"), 0)
    with pytest.raises(BudgetExhausted, match=r"of 0\.000000003 USD"):
        await pay(budget, "0.01")
    with pytest.raises(ValueError, match="cannot be counted"):
        SharedBudget("batch", store, usd=Decimal(10**9))


async def test_many_steps_at_once_are_all_counted(store):
    budget = SharedBudget("batch", store, tokens=10_000)
    run = Budget("run", parent=budget, spent=Usage())
    await asyncio.gather(*(pay(run, "0.10") for _ in range(100)))
    spent, reserved = await budget.look()
    assert (spent.tokens, spent.requests, reserved.requests) == (1000, 100, 0)


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
async def test_where_it_cannot_be_reached_nothing_is_sent(closed_port, kind):
    url = f"{kind}://u:secret@127.0.0.1:{closed_port}/0"
    store = RedisBudgets(url) if kind == "redis" else PostgresBudgets(url)
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        await pay(SharedBudget("batch", store, usd=Decimal(1)), "0.10")
    assert caught.value.retryable
    assert "secret" not in str(caught.value)
    await store.aclose()
