"""Every store keeps every promise of the ports."""

from __future__ import annotations

from tests.contract.store import (
    align,
    answering,
    asides,
    beating,
    caches,
    conversing,
    define,
    entrance,
    finishing,
    held,
    keeping,
    lanes,
    leaps,
    limits,
    live,
    machines,
    message_files,
    noticing,
    outbox,
    pausing,
    plan,
    plan_steps,
    queue,
    quotas,
    settle,
    spending,
    stopping,
    talking,
    threads,
    unread,
    views,
    workers,
)


class TestQueue(queue.QueueContract):
    pass


class TestLater(queue.LaterContract):
    pass


class TestClaim(queue.ClaimContract):
    pass


class TestLimits(limits.LimitContract):
    pass


class TestQuotas(quotas.QuotaContract):
    pass


class TestRates(limits.RateContract):
    pass


class TestLanes(lanes.LaneContract):
    pass


class TestSettle(settle.SettleContract):
    pass


class TestStopping(stopping.StoppingContract):
    pass


class TestFollowUp(settle.FollowUpContract):
    pass


class TestQuestions(settle.QuestionContract):
    pass


class TestAnswering(answering.AnsweringContract):
    pass


class TestPlan(plan.PlanContract):
    pass


class TestPlanSteps(plan_steps.PlanStepContract):
    pass


class TestAlign(align.AlignContract):
    pass


class TestLeaps(leaps.LeapContract):
    pass


class TestLedger(plan.LedgerContract):
    pass


class TestSpaces(define.SpaceContract):
    pass


class TestTasks(define.TaskContract):
    pass


class TestSchedules(define.ScheduleContract):
    pass


class TestWorkers(workers.WorkerContract):
    pass


class TestExpiry(workers.ExpiryContract):
    pass


class TestPruning(workers.PruneContract):
    pass


class TestOutbox(outbox.OutboxContract):
    pass


class TestViews(views.ViewContract):
    pass


class TestCaches(caches.CacheContract):
    pass


class TestKeys(entrance.KeyContract):
    pass


class TestRequests(entrance.RequestContract):
    pass


class TestHeld(held.HeldContract):
    pass


class TestMemory(entrance.MemoryContract):
    pass


class TestTaskList(entrance.TaskListContract):
    pass


class TestEventOrder(live.EventOrderContract):
    pass


class TestPausing(pausing.PauseContract):
    pass


class TestTally(live.TallyContract):
    pass


class TestKeeping(keeping.KeepingContract):
    pass


class TestBeating(beating.BeatingContract):
    pass


class TestMachines(machines.MachineContract):
    pass


class TestDeferred(talking.DeferredContract):
    pass


class TestEffects(talking.EffectContract):
    pass


class TestAsking(talking.AskingContract):
    pass


class TestPreferences(noticing.PreferenceContract):
    pass


class TestNotices(noticing.NoticeContract):
    pass


class TestSpending(spending.SpendingContract):
    pass


class TestAsides(asides.AsideContract):
    pass


class TestSessions(conversing.SessionContract):
    pass


class TestUnread(unread.UnreadContract):
    pass


class TestMessageFiles(message_files.MessageFilesContract):
    pass


class TestMessages(conversing.MessageContract):
    pass


class TestThreads(threads.ThreadContract):
    pass


class TestFinishing(finishing.FinishingContract):
    pass
