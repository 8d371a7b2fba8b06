"""The queue hands out each key once at a time, loses none, and lets failures wait longer and longer."""

import asyncio
import math

from lead_operator.kube.work_queue import FIRST_PAUSE_S, LONGEST_PAUSE_S, OVERTAKES, WorkQueue


async def taken(queue: WorkQueue[str]) -> str:
    async with asyncio.timeout(60):
        return await queue.get()


async def test_a_key_that_was_asked_for_often_is_handed_out_once() -> None:
    queue = WorkQueue[str]()
    for _ in range(100):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    queue.done("a")
    queue.done("b")
    assert len(queue) == 0


async def test_the_oldest_key_counts_from_when_it_was_first_asked_for() -> None:
    queue = WorkQueue[str]()
    assert queue.oldest_s() == 0
    queue.add("a")
    await asyncio.sleep(0.02)
    queue.add("b")
    queue.add("a")
    oldest_s = queue.oldest_s()
    assert oldest_s >= 0.02 and await taken(queue) == "a"
    assert queue.oldest_s() < oldest_s + 60 and await taken(queue) == "b"
    assert queue.oldest_s() == 0


async def test_a_key_in_work_is_never_given_to_a_second_worker_and_comes_back_if_asked_for() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await taken(queue) == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    second = asyncio.create_task(taken(queue))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    queue.done("a")
    assert await second == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_of_several_wishes_for_later_the_earliest_counts() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 600)
    queue.add_after("a", 0)
    queue.add_after("a", 300)
    assert await taken(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_it_is_known_when_a_key_will_be_looked_at_anyway() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 600)
    assert 599 < queue.due_in_s("a") <= 600
    assert queue.due_in_s("b") == math.inf
    queue.drop_timer("a")
    assert queue.due_in_s("a") == math.inf


async def test_a_wish_that_was_dropped_does_not_come_true() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 0)
    queue.drop_timer("a")
    queue.drop_timer("a")
    queue.add_after("b", 0)
    assert await taken(queue) == "b"
    assert len(queue) == 0


async def test_the_pause_grows_with_each_failure_in_a_row_up_to_a_limit() -> None:
    queue = WorkQueue[str]()
    pauses = [queue.add_after_failure("a") for _ in range(30)]
    for number, pause_s in enumerate(pauses):
        expected_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number)
        assert 0.8 * expected_s <= pause_s <= 1.2 * expected_s
    queue.forget_failures("a")
    assert queue.add_after_failure("a") <= 1.2 * FIRST_PAUSE_S
    queue.drop_timer("a")


async def test_what_was_asked_for_now_comes_before_what_is_due_and_each_key_once() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b", "c"):
        queue.add_after(key, 0)
    async with asyncio.timeout(60):
        while len(queue) < 3:
            await asyncio.sleep(0)
    queue.add("c")
    queue.add("d")
    assert len(queue) == 4
    assert [await taken(queue) for _ in range(4)] == ["c", "d", "a", "b"]
    queue.add("a")  # while it is in work
    assert len(queue) == 0
    for key in ("a", "b", "c", "d"):
        queue.done(key)
    assert (len(queue), await taken(queue)) == (1, "a")
    queue.add_after("b", 0)
    assert await taken(queue) == "b"


async def test_many_workers_share_the_keys_and_none_is_lost() -> None:
    queue, seen, at_work = WorkQueue[int](), list[int](), set[int]()

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in at_work
            at_work.add(key)
            await asyncio.sleep(0)
            seen.append(key)
            at_work.discard(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for key in range(200):
        queue.add(key % 50)
        if key % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while len(queue) or at_work:
            await asyncio.sleep(0)
    assert set(seen) == set(range(50))
    for worker in workers:
        worker.cancel()
    ended = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in ended)


async def test_what_is_due_is_overtaken_only_so_many_times() -> None:
    queue = WorkQueue[str]()
    queue.add_after("due", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(2 * OVERTAKES):
        queue.add(f"now {number}")
    handed_out = [await taken(queue) for _ in range(2 * OVERTAKES + 1)]
    assert 0 < handed_out.index("due") <= OVERTAKES
