"""What budgets let through, what they refuse, and what they give back."""

import asyncio
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest
from exchanges import ended, exchange

from reflexion.models.budget import Amount, Budget
from reflexion.models.ends import BudgetExhausted, DeadlineExceeded
from reflexion.models.exchange import guarded
from reflexion.models.usage import Usage


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


async def test_of_parallel_calls_that_do_not_fit_none_goes_out():
    budget = Budget(usd=Decimal("1.00"), spent=Usage(requests=3, prompt_tokens=950, cost_usd=Decimal("0.95")))
    sent = 0

    async def call():
        nonlocal sent
        request = exchange(prompt=40, reply=50)
        async with budget.around(request):
            sent += 1
            await asyncio.sleep(0)
            ended(request, reply=50)

    results = await asyncio.gather(*(call() for _ in range(8)), return_exceptions=True)
    assert sent == 0
    assert {str(error) for error in results} == {
        "budget 'run' of 1 USD: 0.95 spent, 0 reserved, the next call needs 0.09"
    }


async def test_parallel_calls_do_not_pass_the_same_check():
    budget = Budget(usd=Decimal("0.5"))
    sent = 0

    async def call():
        nonlocal sent
        request = exchange(prompt=40, reply=60)
        async with budget.around(request):
            sent += 1
            await asyncio.sleep(0)
            ended(request, reply=60)

    results = await asyncio.gather(*(call() for _ in range(20)), return_exceptions=True)
    assert sent == 5
    assert sum(isinstance(result, BudgetExhausted) for result in results) == 15
    assert budget.used.usd == budget.limit.usd


@pytest.mark.parametrize(
    ("caps", "needed"),
    [({"tokens": 150}, "150 tokens"), ({"usd": Decimal("0.15")}, "0.15 USD"), ({"requests": 1}, "1 requests")],
)
async def test_exactly_the_rest_is_allowed_and_the_next_is_refused(caps, needed):
    budget = Budget("thread", **caps)
    request = exchange(prompt=100, reply=50)
    async with budget.around(request):
        with pytest.raises(BudgetExhausted, match=f"budget 'thread' of {needed}: 0 spent, .* reserved"):
            async with budget.around(exchange(prompt=1)):
                pass
        ended(request, reply=50)
    with pytest.raises(BudgetExhausted, match="0 reserved"):
        async with budget.around(exchange(prompt=1)):
            pass


async def test_a_call_one_token_too_large_is_refused():
    with pytest.raises(BudgetExhausted):
        async with Budget(tokens=149).around(exchange(prompt=100, reply=50)):
            pass


async def test_cancelled_calls_give_everything_back():
    budget = Budget(usd=Decimal("1.00"), tokens=1000, requests=30)

    async def call():
        async with budget.around(exchange(prompt=20, reply=30)):
            await asyncio.sleep(3600)

    tasks = [asyncio.create_task(call()) for _ in range(20)]
    await asyncio.sleep(0)
    assert budget.reserved == Amount(usd=Decimal("1.00"), tokens=1000, requests=20)
    assert budget.remaining == Amount(usd=Decimal(0), tokens=0, requests=10)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.reserved == Amount(usd=Decimal(0), tokens=0, requests=0)
    assert budget.remaining == Amount(usd=Decimal("1.00"), tokens=1000, requests=30)


async def test_a_cancelled_call_that_was_sent_costs_what_its_line_says():
    budget = Budget(tokens=1000)
    request = exchange(prompt=100, reply=500)

    async def call():
        async with budget.around(request):
            try:
                await asyncio.sleep(3600)
            finally:
                ended(request, reply=7, outcome="cancelled", estimated=True)

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (budget.used.tokens, budget.used.requests, budget.reserved.tokens) == (107, 1, 0)


async def test_a_reply_of_twice_its_reservation_overspends_by_itself_alone():
    budget = Budget(tokens=1000, spent=Usage(requests=1, prompt_tokens=900, cost_usd=Decimal(0)))
    request = exchange(prompt=50, reply=50)
    async with budget.around(request):
        ended(request, prompt=100, reply=100)
    assert budget.used.tokens == 1100
    assert budget.remaining.tokens == 0
    with pytest.raises(BudgetExhausted, match="1100 spent"):
        async with budget.around(exchange(prompt=1)):
            pass


async def test_with_overrun_parallel_excesses_do_not_add_up():
    budget = Budget(tokens=1000, overrun=2)

    async def call():
        request = exchange(prompt=50, reply=50)
        async with budget.around(request):
            await asyncio.sleep(0)
            ended(request, prompt=100, reply=100)

    results = await asyncio.gather(*(call() for _ in range(30)), return_exceptions=True)
    assert budget.used.tokens == 1000
    assert "reserved (counted 2 times)" in str(next(error for error in results if error))


async def test_the_tightest_of_nested_budgets_counts_and_each_books():
    batch = Budget("batch", tokens=1000)
    threads = [Budget("thread", tokens=600, parent=batch) for _ in range(2)]
    runs = [Budget("run", requests=2, parent=thread) for thread in threads]
    for run in runs:
        request = exchange(prompt=100, reply=300)
        async with run.around(request):
            ended(request, reply=300)
    assert [budget.used.tokens for budget in (*runs, *threads, batch)] == [400, 400, 400, 400, 800]
    with pytest.raises(BudgetExhausted, match="'thread'"):
        async with runs[0].around(exchange(prompt=201)):
            pass
    assert [budget.reserved.requests for budget in (*runs, *threads, batch)] == [0, 0, 0, 0, 0]
    assert runs[0].reply_limit(exchange(prompt=100)) == 100
    with pytest.raises(BudgetExhausted, match="'batch'"):
        Budget("run", tokens=900, parent=batch).reply_limit(exchange(prompt=200))


@pytest.mark.parametrize(
    ("caps", "wanted", "limit"),
    [
        ({}, 0, None),
        ({}, 500, 500),
        ({"tokens": 1000}, 0, 900),
        ({"tokens": 1000}, 500, 500),
        ({"tokens": 1000}, 5000, 900),
        ({"usd": Decimal("0.5")}, 0, 400),
        ({"usd": Decimal("0.5"), "tokens": 300}, 450, 200),
        ({"usd": Decimal(100000)}, 0, None),
        ({"tokens": 164}, 0, 64),
        ({"tokens": 110}, 10, 10),
    ],
)
def test_the_reply_may_be_as_long_as_can_be_paid_for(caps, wanted, limit):
    assert Budget(**caps).reply_limit(exchange(prompt=100, reply=wanted)) == limit


@pytest.mark.parametrize(
    ("caps", "wanted"), [({"tokens": 163}, 0), ({"tokens": 109}, 10), ({"usd": Decimal("0.1")}, 0)]
)
def test_a_call_without_room_for_a_short_reply_is_refused(caps, wanted):
    with pytest.raises(BudgetExhausted):
        Budget(**caps).reply_limit(exchange(prompt=100, reply=wanted))


async def test_the_limit_fits_even_where_prices_are_tiered():
    budget = Budget(usd=Decimal(10))
    request = exchange(prompt=100)
    request.cost_usd = lambda prompt, reply: Decimal(prompt + reply) * (2 if reply > 300 else 1) / 100
    request.reply_tokens = budget.reply_limit(request) or 0
    assert request.reply_tokens >= 400
    async with budget.around(request):
        assert budget.reserved.usd <= 10


async def test_what_reply_limit_allows_can_be_reserved():
    budget = Budget(usd=Decimal("0.777"), tokens=700, parent=Budget(tokens=650))
    request = exchange(prompt=100)
    request.reply_tokens = budget.reply_limit(request) or 0
    assert request.reply_tokens == 550
    async with budget.around(request):
        assert budget.parent.remaining.tokens == 0


async def test_dollars_need_a_price_and_tokens_do_not():
    with pytest.raises(BudgetExhausted, match="price is unknown; state it in REFLEXION_PRICES"):
        Budget(usd=Decimal("0.01")).reply_limit(exchange(prompt=1, usd=None))
    budget = Budget(tokens=100)
    request = exchange(prompt=10, reply=10, usd=None)
    async with budget.around(request):
        assert budget.reserved.usd is None
        ended(request, reply=10)
    assert budget.used.usd is None
    assert budget.reserved.usd == 0
    assert budget.used.tokens == 20


async def test_a_free_model_passes_a_dollar_budget_of_nothing():
    budget = Budget(usd=Decimal(0))
    request = exchange(prompt=1000, reply=1000, usd="0")
    async with budget.around(request):
        ended(request, reply=1000)
    assert budget.remaining.usd == 0


async def test_time_counts_for_all_that_is_inside():
    clock = Clock()
    batch = Budget("batch", seconds=60, clock=clock)
    run = Budget("run", parent=batch, clock=clock)
    request = exchange(clock=lambda: 5.0)
    async with run.around(request):
        assert request.deadline == 65
    clock.now += 60
    assert batch.remaining.seconds == 0
    with pytest.raises(DeadlineExceeded, match="budget 'batch' of 60 s"):
        run.reply_limit(exchange())
    with pytest.raises(DeadlineExceeded):
        async with run.around(exchange()):
            pass


async def test_an_earlier_deadline_stays():
    request = exchange(clock=lambda: 5.0, deadline=9.0)
    async with Budget(seconds=60).around(request):
        assert request.deadline == 9


async def test_a_budget_goes_on_after_a_crash_where_the_ledger_says():
    spent = Usage(requests=4, prompt_tokens=300, completion_tokens=100, cost_usd=Decimal("0.4"))
    clock = Clock()
    budget = Budget(usd=Decimal(1), tokens=1000, requests=5, seconds=60, spent=spent, elapsed_s=20, clock=clock)
    assert budget.used == Amount(usd=Decimal("0.4"), tokens=400, requests=4, seconds=20)
    assert budget.remaining == Amount(usd=Decimal("0.6"), tokens=600, requests=1, seconds=40)


async def test_a_spent_sum_of_unknown_price_defeats_a_dollar_budget_and_says_so():
    with pytest.raises(BudgetExhausted, match="price is unknown"):
        Budget(usd=Decimal(1), spent=Usage(requests=1, cost_usd=None)).reply_limit(exchange())


async def test_what_an_inner_guard_refuses_is_free():
    class RefusedError(Exception):
        pass

    class Refuses:
        def around(self, exchange):
            raise RefusedError

    budget = Budget(tokens=100)
    with pytest.raises(RefusedError):
        async with guarded(exchange(prompt=50), [budget, Refuses()]):
            pass
    assert (budget.used.tokens, budget.used.requests, budget.remaining.tokens) == (0, 0, 100)


async def test_a_line_without_a_cost_is_booked_at_what_was_reserved():
    budget = Budget(usd=Decimal(1))
    request = exchange(prompt=50, reply=50)
    async with budget.around(request):
        ended(request, reply=50, cost_usd=None)
    assert budget.used.usd == Decimal("0.1")


def test_an_overrun_below_one_is_a_mistake():
    with pytest.raises(ValueError, match="less than 1"):
        Budget(overrun=0)


async def test_leaving_in_any_order_gives_back_the_right_amount():
    budget = Budget(tokens=100)
    first, second = AsyncExitStack(), AsyncExitStack()
    await first.enter_async_context(budget.around(exchange(prompt=30)))
    await second.enter_async_context(budget.around(exchange(prompt=50)))
    await first.aclose()
    assert budget.reserved.tokens == 50
    await second.aclose()
    assert budget.reserved.tokens == 0


async def test_a_patient_budget_lets_calls_wait_for_those_in_flight():
    batch = Budget("batch", tokens=1000, patient=True)
    peak = 0

    async def call():
        nonlocal peak
        request = exchange(prompt=10, reply=190)
        async with Budget("run", tokens=500, parent=batch).around(request):
            peak = max(peak, batch.reserved.requests)
            await asyncio.sleep(0)
            ended(request, reply=10)

    await asyncio.gather(*(call() for _ in range(30)))
    assert peak == 5
    assert batch.used.tokens == 600


async def test_a_patient_budget_refuses_what_can_never_fit_and_shortens_the_last_replies():
    batch = Budget("batch", tokens=1000, patient=True)
    limits = []

    async def call():
        request = exchange(prompt=10, reply=300)
        request.reply_tokens = batch.reply_limit(request)
        async with batch.around(request):
            limits.append(request.reply_tokens)
            await asyncio.sleep(0)
            ended(request, reply=request.reply_tokens)

    results = await asyncio.gather(*(call() for _ in range(8)), return_exceptions=True)
    assert limits == [300, 300, 300]
    assert "930 spent" in str(results[-1])
    with pytest.raises(BudgetExhausted, match="the next call needs 74"):
        batch.reply_limit(exchange(prompt=10))
    tight = exchange(prompt=1, reply=300)
    assert batch.reply_limit(tight) == 69


async def test_waiting_in_a_patient_budget_ends_with_its_time():
    batch = Budget("batch", tokens=100, seconds=0.05, patient=True)
    async with batch.around(exchange(prompt=100)):
        with pytest.raises(DeadlineExceeded, match="wait for room in budget 'batch'"):
            async with batch.around(exchange(prompt=100)):
                pass
    assert batch.reserved.requests == 0


async def test_whoever_is_cancelled_while_waiting_reserves_nothing():
    batch = Budget("batch", tokens=100, patient=True)
    async with batch.around(exchange(prompt=100)):

        async def call():
            async with batch.around(exchange(prompt=100)):
                pass

        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert batch.reserved.requests == 1
    assert batch.remaining.tokens == 100
