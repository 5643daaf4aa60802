"""From what was said and how the process ended to one verdict."""

from datetime import UTC, datetime

import pytest

from rota.agents.shared.diagnosis import classify, is_banner
from rota.agents.shared.result import AgentTranscript, agent_result, exit_sentence
from rota.model.agents import (
    MEANINGS,
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentQuestion,
    AgentToolCall,
    AgentUsage,
    ProcessExit,
    StopReason,
)
from rota.model.attempts import Cancelled, Failed, Succeeded, WaitingForAnswer

WELL = ProcessExit(code=0)
DONE = AgentAnswer(text="done")
INSTALL = "install its program or image, or correct its path."
LIMITED = AgentError(kind=AgentErrorKind.RATE_LIMIT, detail="slow down")


def verdict(*said, end=WELL):
    heard = AgentTranscript()
    for one in said:
        heard.add(one)
    return agent_result(heard, end)


def test_a_result_and_a_good_exit_are_a_success():
    assert verdict(DONE).outcome == Succeeded(result='"done"')


def test_an_exit_without_a_result_is_a_failure():
    assert verdict().error is AgentErrorKind.NO_RESULT


def test_of_two_results_the_last_one_counts():
    judged = verdict(AgentAnswer(text="first"), DONE)
    assert (judged.text, judged.results) == ("done", 2)
    assert isinstance(judged.outcome, Succeeded)


def test_a_result_that_says_nothing_takes_no_other_ones_place():
    judged = verdict(DONE, AgentAnswer(text=" "))
    assert (judged.text, judged.outcome) == ("done", Succeeded(result='"done"'))
    assert verdict(DONE, AgentAnswer(text="", data="1")).outcome == Succeeded(result="1")


def test_a_fault_after_the_result_is_a_failure_and_the_result_can_be_read():
    judged = verdict(DONE, LIMITED)
    assert judged.error is AgentErrorKind.RATE_LIMIT
    assert judged.text == "done"


def test_a_result_after_a_fault_is_a_success():
    assert verdict(LIMITED, DONE).error is None


def test_a_result_after_a_cancellation_is_kept_and_does_not_count():
    judged = verdict(DONE, end=ProcessExit(code=0, stopped=StopReason.CANCELLED))
    assert isinstance(judged.outcome, Cancelled)
    assert judged.text == "done"


@pytest.mark.parametrize("stop", [StopReason.TIMEOUT, StopReason.IDLE])
def test_a_stop_for_time_is_a_timeout_also_after_a_result(stop):
    judged = verdict(DONE, end=ProcessExit(signal=9, stopped=stop))
    assert judged.error is AgentErrorKind.TIMEOUT
    assert judged.outcome.retryable


@pytest.mark.parametrize(
    "end",
    [
        ProcessExit(signal=9),
        ProcessExit(code=137),
        ProcessExit(code=1, out_of_memory=True),
        ProcessExit(code=0, out_of_memory=True),
    ],
)
def test_a_kill_that_was_not_ours_is_out_of_memory_and_not_tried_again(end):
    judged = verdict(DONE, end=end)
    assert judged.error is AgentErrorKind.OUT_OF_MEMORY
    assert not judged.outcome.retryable
    assert not judged.transient


@pytest.mark.parametrize(
    "end", [ProcessExit(code=1), ProcessExit(code=255), ProcessExit(signal=15), ProcessExit()]
)
def test_no_other_end_is_a_success(end):
    judged = verdict(DONE, end=end)
    assert isinstance(judged.outcome, Failed)
    assert judged.text == "done"


def test_a_program_that_cannot_be_started_is_not_tried_again():
    words = b"cannot start claude: No such file or directory"
    judged = verdict(end=ProcessExit(code=126, stderr_tail=words, begun=False))
    assert judged.error is AgentErrorKind.NOT_STARTED
    assert not judged.outcome.retryable


def test_an_engine_that_could_not_start_a_program_now_may_later():
    words = b"cannot start container: podman does not answer"
    assert verdict(end=ProcessExit(code=125, stderr_tail=words, begun=False)).outcome.retryable


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (127, b"sh: upload: not found", "sh: upload: not found\n{}\nsh: upload: not found"),
        (126, b"cannot start it", "cannot start it\n{}\ncannot start it"),
        (127, b"", "{}\n{}"),
    ],
)
def test_a_program_whose_own_command_is_missing_has_failed_like_any_other(code, words, message):
    hint = {
        126: "exit code 126 (command cannot be executed)",
        127: "exit code 127 (command not found)",
    }[code]
    judged = verdict(end=ProcessExit(code=code, stderr_tail=words))
    assert (judged.outcome.code, judged.outcome.message) == ("other", message.format(hint, hint))


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (ProcessExit(code=4, stderr_tail=b"reading\ndisk /dev/sda9 is full\n\n"),
         "disk /dev/sda9 is full"),
        (ProcessExit(code=4, stderr_tail=b"10%\r99%\r\x1b[31mno disk\x1b[0m\n"), "no disk"),
        (ProcessExit(code=1, stderr_tail=b"key sk-ant-0123456789abcdef"), "key [secret]"),
        (ProcessExit(code=4), "exit code 4"),
        (ProcessExit(signal=15), "signal 15"),
        (ProcessExit(code=126, begun=False,
              stderr_tail=b"cannot start talk2.py: No such file or directory\n"),
         f"It cannot be started: talk2.py: No such file or directory; {INSTALL}"),
        (ProcessExit(code=1, stderr_tail=b"API Error: 529 Overloaded"),
         "The model's provider is overloaded; wait and try again."),
    ],
)  # fmt: skip
def test_the_last_line_of_standard_error_is_the_reason_unless_a_provider_said_it(end, first):
    message = verdict(end=end).outcome.message
    assert message.splitlines()[0] == first
    assert f"exit code {end.code}" in message or f"signal {end.signal}" in message


@pytest.mark.parametrize(
    ("end", "sent"),
    [
        (
            ProcessExit(code=1, stderr_tail=b"/root/.secret exploded at 0x7f"),
            AgentErrorKind.OTHER.sentence,
        ),
        (
            ProcessExit(code=127, stderr_tail=b"sh: /root/.x: not found"),
            AgentErrorKind.OTHER.sentence,
        ),
        (
            ProcessExit(code=126, begun=False, stderr_tail=b"cannot start talk2.py: No such file"),
            None,
        ),
        (ProcessExit(code=1, stderr_tail=b"API Error: 529 Overloaded"), None),
    ],
)
def test_what_an_agent_said_of_its_failure_stays_with_the_run(end, sent):
    assert verdict(end=end).outcome.sentence == sent


def test_the_reason_of_a_script_is_sent():
    heard = AgentTranscript(has_provider=False)
    assert agent_result(heard, ProcessExit(code=1, stderr_tail=b"no disk")).outcome.sentence is None


def test_what_an_agent_tells_itself_is_the_reason():
    told = AgentError(kind=AgentErrorKind.OTHER, detail="no such room\nat line 3")
    assert verdict(told, end=ProcessExit(code=1)).outcome.message.startswith("no such room\n")


def test_a_failing_exit_keeps_the_kind_that_was_told():
    assert (
        verdict(LIMITED, end=ProcessExit(code=1, stderr_tail=b"boom")).error
        is AgentErrorKind.RATE_LIMIT
    )


FULL = [
    "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
    "fatal error: runtime: out of memory",
    "Out of memory!",
    "java.lang.OutOfMemoryError: Java heap space",
    "Unhandled exception. System.OutOfMemoryException",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "memory allocation of 8589934592 bytes failed",
    "fork: Cannot allocate memory",
    "Error: spawn ENOMEM",
    "MemoryError",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB",
    "failed to allocate memory (NoMemoryError)",
    "virtual memory exhausted",
    "PHP Fatal error: Allowed memory size of 134217728 bytes exhausted",
    "There is insufficient memory for the Java Runtime Environment to continue.",
]


@pytest.mark.parametrize("has_provider", [True, False])
@pytest.mark.parametrize("words", FULL)
def test_want_of_memory_is_told_by_standard_error_and_not_tried_again(words, has_provider):
    trace = f"{words}\n" + "    at frame [0x7f0a]\n" * 400
    for tail in (words, trace):
        end = ProcessExit(signal=6, stderr_tail=tail.encode())
        judged = agent_result(AgentTranscript(has_provider=has_provider), end)
        assert judged.error is AgentErrorKind.OUT_OF_MEMORY
        assert not judged.outcome.retryable


def test_words_about_memory_are_no_want_of_it():
    for words in (b"no such file: memory.txt", b"KeyError: 'memory'", b"a memory leak was found"):
        assert verdict(end=ProcessExit(code=1, stderr_tail=words)).error is AgentErrorKind.OTHER


def test_an_empty_answer_is_a_result_only_of_an_agent_that_did_something():
    empty = AgentAnswer(text="")
    assert verdict(empty).error is AgentErrorKind.NO_RESULT
    assert verdict(AgentToolCall(name="Bash"), empty).outcome == Succeeded()


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        ("API Error: 529 Overloaded. This is a server-side issue", AgentErrorKind.OVERLOAD),
        ("API Error: Request rejected (429) · too many", AgentErrorKind.RATE_LIMIT),
        ('API Error: 401 {"type":"error"}', AgentErrorKind.AUTHENTICATION),
        ("Invalid API key · Please run /login", AgentErrorKind.AUTHENTICATION),
        ("Credit balance is too low", AgentErrorKind.BILLING),
        ("Prompt is too long", AgentErrorKind.CONTEXT_TOO_LONG),
        ("Claude AI usage limit reached|1794767832", AgentErrorKind.RATE_LIMIT),
        ('{"type":"error","error":{"type":"overloaded_error"}}', AgentErrorKind.OVERLOAD),
        ('{"error": "rate limited by the gateway: rate limit"}', AgentErrorKind.RATE_LIMIT),
        ('Failed to authenticate. API Error: 401 {"type":"error"}', AgentErrorKind.AUTHENTICATION),
        ("Not logged in · Please run /login", AgentErrorKind.AUTHENTICATION),
        ("Please run /login · API Error: 403 forbidden", AgentErrorKind.AUTHENTICATION),
        ("OAuth token revoked · Please run /login", AgentErrorKind.AUTHENTICATION),
        ("Repeated 529 Overloaded errors", AgentErrorKind.OVERLOAD),
        ("Claude usage limit reached. It resets at 6pm", AgentErrorKind.RATE_LIMIT),
        ("Error: 429 Too Many Requests", AgentErrorKind.RATE_LIMIT),
        ("Error code: 429 - {'error': {'message': 'slow down'}}", AgentErrorKind.RATE_LIMIT),
        ("[API Error: 503 Service Unavailable]", AgentErrorKind.OVERLOAD),
    ],
)
def test_an_answer_that_is_only_a_banner_is_a_failure(banner, kind):
    judged = verdict(AgentAnswer(text=banner))
    assert isinstance(judged.outcome, Failed)
    assert judged.error is kind


@pytest.mark.parametrize(
    "answer",
    [
        "I looked at the log: API Error: 529 appears twice.",
        "The prompt is too long for a tweet; here is a shorter one.",
        '{"type": "report", "errors": 0}',
        '{"error": {"seen": 3}, "done": true}',
        '{"error": null}',
        '{"error": "the invoice has no number"}',
        "API Error handling is now in place in client.py; all 40 tests pass.",
        "Error: 404 pages are styled now.",
        "Error 429 is handled by waiting.",
        "API Error handling, a summary. " + "Long text. " * 200,
    ],
)
def test_an_answer_about_errors_is_an_answer(answer):
    assert not is_banner(answer)
    assert verdict(AgentAnswer(text=answer)).error is None


def test_a_limit_tells_when_it_is_lifted():
    judged = verdict(AgentAnswer(text="Claude AI usage limit reached|1794767832"))
    assert judged.until == datetime(2026, 11, 15, 18, 37, 12, tzinfo=UTC)


def test_a_question_is_asked_when_nothing_came_after_it():
    question = AgentQuestion(text="Which?", options=("a", "b"))
    assert verdict(question).outcome == WaitingForAnswer(question="Which?", options=("a", "b"))
    assert verdict(question, DONE).outcome == Succeeded(result='"done"')
    assert verdict(question, end=ProcessExit(code=1)).error is AgentErrorKind.OTHER


@pytest.mark.parametrize(
    ("words", "status", "kind"),
    [
        ("", 401, AgentErrorKind.AUTHENTICATION),
        ("", 403, AgentErrorKind.AUTHENTICATION),
        ("", 402, AgentErrorKind.BILLING),
        ("", 413, AgentErrorKind.CONTEXT_TOO_LONG),
        ("", 429, AgentErrorKind.RATE_LIMIT),
        ("insufficient_quota", 429, AgentErrorKind.BILLING),
        *(("", status, AgentErrorKind.OVERLOAD) for status in (500, 502, 503, 504, 529)),
        ("nothing I know", 400, AgentErrorKind.OTHER),
        ("nothing I know", None, AgentErrorKind.OTHER),
        (
            "exceeded retry limit, last status: 429 Too Many Requests",
            None,
            AgentErrorKind.RATE_LIMIT,
        ),
        ("fetch failed: ECONNREFUSED 10.0.0.1:443", None, AgentErrorKind.NETWORK),
        ("getaddrinfo ENOTFOUND api.example.com", None, AgentErrorKind.NETWORK),
        ("FileNotFoundError: 'notes.txt'", None, AgentErrorKind.OTHER),
        ("line 500 of the file", None, AgentErrorKind.OTHER),
        ("stop_reason: refusal", None, AgentErrorKind.REFUSED),
        (
            'Error: Model "nope/none" not found. Use --list-models',
            None,
            AgentErrorKind.UNKNOWN_MODEL,
        ),
        ("The 'x' model is not supported when using it so", 400, AgentErrorKind.UNKNOWN_MODEL),
        ("Error code: 429 - slow down", None, AgentErrorKind.RATE_LIMIT),
        ("imported (500 rows)\nValueError: bad row 501", None, AgentErrorKind.OTHER),
        ('File "/srv/billing.py", line 3\nValueError: no', None, AgentErrorKind.OTHER),
        ("billing_hard_limit_reached", None, AgentErrorKind.BILLING),
    ],
)
def test_errors_are_told_apart(words, status, kind):
    assert classify(words, status) is kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("500 rows were read\nValueError: no", AgentErrorKind.OTHER),
        ("psycopg.OperationalError: connection refused: is the database up?", AgentErrorKind.OTHER),
        ("HTTP 429 from the model", AgentErrorKind.RATE_LIMIT),
    ],
)
def test_what_a_program_says_itself_is_never_tried_again_on_a_guess(words, kind):
    heard = AgentTranscript(own_errors=True)
    judged = agent_result(heard, ProcessExit(code=1, stderr_tail=words.encode()))
    assert (judged.error, judged.transient) == (kind, False)
    heard.add(LIMITED)
    assert agent_result(heard, ProcessExit(code=1)).transient


def test_what_is_tried_again_soon_is_also_tried_again():
    assert set(MEANINGS) == set(AgentErrorKind)
    assert all(kind.retry for kind in AgentErrorKind if kind.transient)
    assert {kind for kind in AgentErrorKind if kind.transient} == {
        AgentErrorKind.RATE_LIMIT,
        AgentErrorKind.OVERLOAD,
        AgentErrorKind.NETWORK,
    }
    assert not AgentErrorKind.OUT_OF_MEMORY.retry
    assert not AgentErrorKind.CANCELLED.retry


def test_people_are_told_one_sentence_first_and_never_a_key():
    judged = verdict(exit_sentence("401 Incorrect API key provided: sk-proj-abcdefghijklmnop"))
    first, rest = judged.outcome.message.split("\n", 1)
    assert first == AgentErrorKind.AUTHENTICATION.sentence
    assert rest == "401 Incorrect API key provided: [secret]"


@pytest.mark.parametrize("kind", AgentErrorKind)
def test_a_sentence_is_one_and_short(kind):
    assert kind.sentence.count(".") == 1
    assert kind.sentence.endswith(".")
    assert len(kind.sentence) <= 80


def test_usage_adds_up():
    both = AgentUsage(input=1, cost=0.5, model="a") + AgentUsage(input=2, output=3, model="b")
    assert both == AgentUsage(input=3, output=3, cost=0.5, model="b")
