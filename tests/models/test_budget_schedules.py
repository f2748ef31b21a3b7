"""Random schedules of calls that are reserved, answered, cut, cancelled and refused, over nested budgets."""

import asyncio
from contextlib import AsyncExitStack
from decimal import Decimal

from exchanges import ended, exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from reflexion.models.budget import Budget
from reflexion.models.ends import BudgetExhausted
from reflexion.models.exchange import guarded
from reflexion.models.ledger import Ledger, MemoryLedger, sums
from reflexion.models.usage import Usage

OVERRUN = 2
TOKENS = {"batch": 3000, "thread 0": 2000, "thread 1": 1500, "run 0": 900, "run 1": 900, "run 2": 900}
USD_PER_TOKEN = "0.0000013"


class Schedules(RuleBasedStateMachine):
    """Two threads in a batch, three runs in the threads; any number of calls in flight."""

    flights = Bundle("flights")

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        batch = self.budget("batch", None)
        threads = [self.budget(f"thread {n}", batch) for n in range(2)]
        self.runs = [self.budget(f"run {n}", threads[n % 2]) for n in range(3)]
        self.budgets = [batch, *threads, *self.runs]
        self.store = MemoryLedger()
        self.ledgers = [Ledger(self.store) for _ in self.runs]
        self.in_flight = 0
        self.largest = dict.fromkeys(TOKENS, 0)

    def budget(self, name, parent):
        usd = Decimal(USD_PER_TOKEN) * TOKENS[name]
        return Budget(name, tokens=TOKENS[name], usd=usd, requests=40, parent=parent, overrun=OVERRUN)

    def chain(self, run):
        budget = self.runs[run]
        while budget:
            yield budget
            budget = budget.parent

    @rule(
        target=flights,
        run=st.integers(0, 2),
        prompt=st.integers(1, 400),
        wanted=st.integers(0, 800),
        asks=st.booleans(),
    )
    def reserve(self, run, prompt, wanted, asks):
        request = exchange(prompt=prompt, reply=wanted, usd=USD_PER_TOKEN, run_id=f"run {run}", role=f"role {run}")
        room = [budget.remaining.tokens for budget in self.chain(run)]
        try:
            if asks:
                request.reply_tokens = self.runs[run].reply_limit(request)
            stack = AsyncExitStack()
            self.loop.run_until_complete(
                stack.enter_async_context(guarded(request, [self.runs[run], self.ledgers[run]]))
            )
        except BudgetExhausted:
            least = min(64, wanted or 64) if asks else wanted
            full = any(budget.remaining.requests == 0 for budget in self.chain(run))
            assert full or prompt + least > min(room)
            return multiple()
        self.in_flight += 1
        return run, request, stack

    @rule(flight=consumes(flights), share=st.floats(0, OVERRUN), failed=st.booleans())
    def settle(self, flight, share, failed):
        run, request, stack = flight
        prompt = 0 if failed else int(request.prompt_tokens * share)
        reply = 0 if failed else int(request.reply_tokens * share)
        ended(request, prompt=prompt, reply=reply, outcome="rate_limit" if failed else "ok")
        excess = prompt + reply - request.prompt_tokens - request.reply_tokens
        for budget in self.chain(run):
            self.largest[budget.name] = max(self.largest[budget.name], excess)
        self.leave(stack)

    @rule(flight=consumes(flights), sent=st.booleans())
    def cancel(self, flight, sent):
        _, request, stack = flight
        if sent:
            ended(request, reply=request.reply_tokens // 2, outcome="cancelled", estimated=True)
        error = asyncio.CancelledError()
        self.loop.run_until_complete(stack.__aexit__(type(error), error, None))
        self.in_flight -= 1

    def leave(self, stack):
        self.loop.run_until_complete(stack.aclose())
        self.in_flight -= 1

    @invariant()
    def spent_stays_within_the_cap_and_one_overrun(self):
        for budget in self.budgets:
            over = self.largest[budget.name]
            assert budget.used.tokens <= budget.limit.tokens + over
            assert budget.used.usd <= budget.limit.usd + Decimal(USD_PER_TOKEN) * over
            assert budget.used.requests + budget.reserved.requests <= budget.limit.requests

    @invariant()
    def nothing_in_flight_means_nothing_reserved(self):
        batch = self.budgets[0]
        assert batch.reserved.requests == self.in_flight
        if not self.in_flight:
            for budget in self.budgets:
                assert (budget.reserved.tokens, budget.reserved.usd, budget.reserved.requests) == (0, 0, 0)

    @invariant()
    def ledger_and_budgets_agree(self):
        stored = self.loop.run_until_complete(self.store.lines())
        done = [line for line in stored if line["outcome"] != "pending"]
        assert len(stored) - len(done) == self.in_flight
        by_run = sums(done, "run_id")
        for number, budget in enumerate(self.runs):
            total = by_run.get(f"run {number}", Usage())
            assert (total.tokens, total.cost_usd, total.requests) == (
                budget.used.tokens,
                budget.used.usd,
                budget.used.requests,
            )
        whole = Usage.of(done)
        assert (whole.tokens, whole.cost_usd) == (self.budgets[0].used.tokens, self.budgets[0].used.usd)
        for ledger in self.ledgers:
            for line in ledger.lines:
                assert line in stored

    def teardown(self):
        self.loop.close()


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@given(
    calls=st.lists(
        st.tuples(st.integers(1, 200), st.integers(1, 400), st.floats(0, 1), st.integers(0, 3)), max_size=25
    ),
    cap=st.integers(0, 1500),
)
@settings(max_examples=40, deadline=None)
def test_calls_that_wait_in_a_patient_budget_all_end_within_it(calls, cap):
    async def one(batch, prompt, wanted, share, turns):
        request = exchange(prompt=prompt, reply=wanted)
        async with Budget("run", tokens=700, parent=batch).around(request):
            assert batch.used.tokens + batch.reserved.tokens <= cap
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns:
                ended(request, reply=int(request.reply_tokens * share))

    async def all_of_them():
        batch = Budget("batch", tokens=cap, patient=True)
        async with asyncio.timeout(20):
            results = await asyncio.gather(*(one(batch, *call) for call in calls), return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), BudgetExhausted}
        assert batch.used.tokens <= cap
        assert batch.reserved.requests == 0

    asyncio.run(all_of_them())
