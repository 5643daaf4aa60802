"""From what was said and how the process ended to one verdict."""

from datetime import UTC, datetime

import pytest

from rota.agents.kit.diagnosis import classify, is_banner
from rota.agents.kit.judging import Heard, judge, told
from rota.model.faults import MEANINGS, FaultKind
from rota.model.outcomes import Asked, Cancelled, Failed, Succeeded
from rota.model.said import Fault, Question, Result, ToolCall, Usage
from rota.model.verdicts import Exit, Stop

WELL = Exit(code=0)
DONE = Result(text="done")
INSTALL = "install its program or its image, or correct its path."
LIMITED = Fault(kind=FaultKind.RATE_LIMIT, detail="slow down")


def verdict(*said, end=WELL):
    heard = Heard()
    for one in said:
        heard.note(one)
    return judge(heard, end)


def test_a_result_and_a_good_exit_are_a_success():
    assert verdict(DONE).outcome == Succeeded(result='"done"')


def test_an_exit_without_a_result_is_a_failure():
    assert verdict().fault is FaultKind.NO_RESULT


def test_of_two_results_the_last_one_counts():
    judged = verdict(Result(text="first"), DONE)
    assert (judged.text, judged.results) == ("done", 2)
    assert isinstance(judged.outcome, Succeeded)


def test_a_result_that_says_nothing_takes_no_other_ones_place():
    judged = verdict(DONE, Result(text=" "))
    assert (judged.text, judged.outcome) == ("done", Succeeded(result='"done"'))
    assert verdict(DONE, Result(text="", data="1")).outcome == Succeeded(result="1")


def test_a_fault_after_the_result_is_a_failure_and_the_result_can_be_read():
    judged = verdict(DONE, LIMITED)
    assert judged.fault is FaultKind.RATE_LIMIT
    assert judged.text == "done"


def test_a_result_after_a_fault_is_a_success():
    assert verdict(LIMITED, DONE).fault is None


def test_a_result_after_a_cancellation_is_kept_and_does_not_count():
    judged = verdict(DONE, end=Exit(code=0, stopped=Stop.CANCELLED))
    assert isinstance(judged.outcome, Cancelled)
    assert judged.text == "done"


@pytest.mark.parametrize("stop", [Stop.TIMEOUT, Stop.IDLE])
def test_a_stop_for_time_is_a_timeout_also_after_a_result(stop):
    judged = verdict(DONE, end=Exit(signal=9, stopped=stop))
    assert judged.fault is FaultKind.TIMEOUT
    assert judged.outcome.retryable


@pytest.mark.parametrize(
    "end",
    [
        Exit(signal=9),
        Exit(code=137),
        Exit(code=1, out_of_memory=True),
        Exit(code=0, out_of_memory=True),
    ],
)
def test_a_kill_that_was_not_ours_is_out_of_memory_and_not_tried_again(end):
    judged = verdict(DONE, end=end)
    assert judged.fault is FaultKind.OUT_OF_MEMORY
    assert not judged.outcome.retryable
    assert not judged.transient


@pytest.mark.parametrize("end", [Exit(code=1), Exit(code=255), Exit(signal=15), Exit()])
def test_no_other_end_is_a_success(end):
    judged = verdict(DONE, end=end)
    assert isinstance(judged.outcome, Failed)
    assert judged.text == "done"


def test_a_program_that_cannot_be_started_is_not_tried_again():
    words = b"cannot start claude: No such file or directory"
    judged = verdict(end=Exit(code=126, stderr_tail=words, begun=False))
    assert judged.fault is FaultKind.NOT_STARTED
    assert not judged.outcome.retryable


def test_an_engine_that_could_not_start_a_program_now_may_later():
    words = b"cannot start container: podman does not answer"
    assert verdict(end=Exit(code=125, stderr_tail=words, begun=False)).outcome.retryable


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
    judged = verdict(end=Exit(code=code, stderr_tail=words))
    assert (judged.outcome.code, judged.outcome.message) == ("other", message.format(hint, hint))


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (Exit(code=4, stderr_tail=b"reading\ndisk /dev/sda9 is full\n\n"),
         "disk /dev/sda9 is full"),
        (Exit(code=4, stderr_tail=b"10%\r99%\r\x1b[31mno disk\x1b[0m\n"), "no disk"),
        (Exit(code=1, stderr_tail=b"key sk-ant-0123456789abcdef"), "key [secret]"),
        (Exit(code=4), "exit code 4"),
        (Exit(signal=15), "signal 15"),
        (Exit(code=126, begun=False,
              stderr_tail=b"cannot start talk2.py: No such file or directory\n"),
         f"It cannot be started: talk2.py: No such file or directory; {INSTALL}"),
        (Exit(code=1, stderr_tail=b"API Error: 529 Overloaded"),
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
        (Exit(code=1, stderr_tail=b"/root/.secret exploded at 0x7f"), FaultKind.OTHER.sentence),
        (Exit(code=127, stderr_tail=b"sh: /root/.x: not found"), FaultKind.OTHER.sentence),
        (Exit(code=126, begun=False, stderr_tail=b"cannot start talk2.py: No such file"), None),
        (Exit(code=1, stderr_tail=b"API Error: 529 Overloaded"), None),
    ],
)
def test_what_an_agent_said_of_its_failure_stays_with_the_run(end, sent):
    assert verdict(end=end).outcome.sentence == sent


def test_the_reason_of_a_script_is_sent():
    heard = Heard(has_provider=False)
    assert judge(heard, Exit(code=1, stderr_tail=b"no disk")).outcome.sentence is None


def test_what_an_agent_tells_itself_is_the_reason():
    told = Fault(kind=FaultKind.OTHER, detail="no such room\nat line 3")
    assert verdict(told, end=Exit(code=1)).outcome.message.startswith("no such room\n")


def test_a_failing_exit_keeps_the_kind_that_was_told():
    assert verdict(LIMITED, end=Exit(code=1, stderr_tail=b"boom")).fault is FaultKind.RATE_LIMIT


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
        end = Exit(signal=6, stderr_tail=tail.encode())
        judged = judge(Heard(has_provider=has_provider), end)
        assert judged.fault is FaultKind.OUT_OF_MEMORY
        assert not judged.outcome.retryable


def test_words_about_memory_are_no_want_of_it():
    for words in (b"no such file: memory.txt", b"KeyError: 'memory'", b"a memory leak was found"):
        assert verdict(end=Exit(code=1, stderr_tail=words)).fault is FaultKind.OTHER


def test_an_empty_answer_is_a_result_only_of_an_agent_that_did_something():
    empty = Result(text="")
    assert verdict(empty).fault is FaultKind.NO_RESULT
    assert verdict(ToolCall(name="Bash"), empty).outcome == Succeeded()


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        ("API Error: 529 Overloaded. This is a server-side issue", FaultKind.OVERLOAD),
        ("API Error: Request rejected (429) · too many", FaultKind.RATE_LIMIT),
        ('API Error: 401 {"type":"error"}', FaultKind.AUTHENTICATION),
        ("Invalid API key · Please run /login", FaultKind.AUTHENTICATION),
        ("Credit balance is too low", FaultKind.BILLING),
        ("Prompt is too long", FaultKind.CONTEXT_TOO_LONG),
        ("Claude AI usage limit reached|1794767832", FaultKind.RATE_LIMIT),
        ('{"type":"error","error":{"type":"overloaded_error"}}', FaultKind.OVERLOAD),
        ('{"error": "rate limited by the gateway: rate limit"}', FaultKind.RATE_LIMIT),
        ('Failed to authenticate. API Error: 401 {"type":"error"}', FaultKind.AUTHENTICATION),
        ("Not logged in · Please run /login", FaultKind.AUTHENTICATION),
        ("Please run /login · API Error: 403 forbidden", FaultKind.AUTHENTICATION),
        ("OAuth token revoked · Please run /login", FaultKind.AUTHENTICATION),
        ("Repeated 529 Overloaded errors", FaultKind.OVERLOAD),
        ("Claude usage limit reached. It resets at 6pm", FaultKind.RATE_LIMIT),
        ("Error: 429 Too Many Requests", FaultKind.RATE_LIMIT),
        ("Error code: 429 - {'error': {'message': 'slow down'}}", FaultKind.RATE_LIMIT),
        ("[API Error: 503 Service Unavailable]", FaultKind.OVERLOAD),
    ],
)
def test_an_answer_that_is_only_a_banner_is_a_failure(banner, kind):
    judged = verdict(Result(text=banner))
    assert isinstance(judged.outcome, Failed)
    assert judged.fault is kind


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
    assert verdict(Result(text=answer)).fault is None


def test_a_limit_tells_when_it_is_lifted():
    judged = verdict(Result(text="Claude AI usage limit reached|1794767832"))
    assert judged.until == datetime(2026, 11, 15, 18, 37, 12, tzinfo=UTC)


def test_a_question_is_asked_when_nothing_came_after_it():
    question = Question(text="Which?", options=("a", "b"))
    assert verdict(question).outcome == Asked(question="Which?", options=("a", "b"))
    assert verdict(question, DONE).outcome == Succeeded(result='"done"')
    assert verdict(question, end=Exit(code=1)).fault is FaultKind.OTHER


@pytest.mark.parametrize(
    ("words", "status", "kind"),
    [
        ("", 401, FaultKind.AUTHENTICATION),
        ("", 403, FaultKind.AUTHENTICATION),
        ("", 402, FaultKind.BILLING),
        ("", 413, FaultKind.CONTEXT_TOO_LONG),
        ("", 429, FaultKind.RATE_LIMIT),
        ("insufficient_quota", 429, FaultKind.BILLING),
        *(("", status, FaultKind.OVERLOAD) for status in (500, 502, 503, 504, 529)),
        ("nothing I know", 400, FaultKind.OTHER),
        ("nothing I know", None, FaultKind.OTHER),
        ("exceeded retry limit, last status: 429 Too Many Requests", None, FaultKind.RATE_LIMIT),
        ("fetch failed: ECONNREFUSED 10.0.0.1:443", None, FaultKind.NETWORK),
        ("getaddrinfo ENOTFOUND api.example.com", None, FaultKind.NETWORK),
        ("FileNotFoundError: 'notes.txt'", None, FaultKind.OTHER),
        ("line 500 of the file", None, FaultKind.OTHER),
        ("stop_reason: refusal", None, FaultKind.REFUSED),
        ('Error: Model "nope/none" not found. Use --list-models', None, FaultKind.UNKNOWN_MODEL),
        ("The 'x' model is not supported when using it so", 400, FaultKind.UNKNOWN_MODEL),
        ("Error code: 429 - slow down", None, FaultKind.RATE_LIMIT),
        ("imported (500 rows)\nValueError: bad row 501", None, FaultKind.OTHER),
        ('File "/srv/billing.py", line 3\nValueError: no', None, FaultKind.OTHER),
        ("billing_hard_limit_reached", None, FaultKind.BILLING),
    ],
)
def test_errors_are_told_apart(words, status, kind):
    assert classify(words, status) is kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("500 rows were read\nValueError: no", FaultKind.OTHER),
        ("psycopg.OperationalError: connection refused: is the database up?", FaultKind.OTHER),
        ("HTTP 429 from the model", FaultKind.RATE_LIMIT),
    ],
)
def test_what_a_program_says_itself_is_never_tried_again_on_a_guess(words, kind):
    heard = Heard(own_errors=True)
    judged = judge(heard, Exit(code=1, stderr_tail=words.encode()))
    assert (judged.fault, judged.transient) == (kind, False)
    heard.note(LIMITED)
    assert judge(heard, Exit(code=1)).transient


def test_what_is_tried_again_soon_is_also_tried_again():
    assert set(MEANINGS) == set(FaultKind)
    assert all(kind.retry for kind in FaultKind if kind.transient)
    assert {kind for kind in FaultKind if kind.transient} == {
        FaultKind.RATE_LIMIT,
        FaultKind.OVERLOAD,
        FaultKind.NETWORK,
    }
    assert not FaultKind.OUT_OF_MEMORY.retry
    assert not FaultKind.CANCELLED.retry


def test_people_are_told_one_sentence_first_and_never_a_key():
    judged = verdict(told("401 Incorrect API key provided: sk-proj-abcdefghijklmnop"))
    first, rest = judged.outcome.message.split("\n", 1)
    assert first == FaultKind.AUTHENTICATION.sentence
    assert rest == "401 Incorrect API key provided: [secret]"


@pytest.mark.parametrize("kind", FaultKind)
def test_a_sentence_is_one_and_short(kind):
    assert kind.sentence.count(".") == 1
    assert kind.sentence.endswith(".")
    assert len(kind.sentence) <= 80


def test_usage_adds_up():
    both = Usage(input=1, cost=0.5, model="a") + Usage(input=2, output=3, model="b")
    assert both == Usage(input=3, output=3, cost=0.5, model="b")
