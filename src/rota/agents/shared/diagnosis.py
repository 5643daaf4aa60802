"""Classification of agents' errors: by the provider's status, then by their text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from http import HTTPStatus

from rota.agents.shared.stream import mapping, parse
from rota.model.agents import AgentErrorKind

MAX_BANNER = 1_000
LATEST_RESET = 4_102_444_800
"""The year 2100; later times are invalid."""

ERROR_PATTERNS = {
    AgentErrorKind.SESSION_LOST: r"no conversation found|no rollout found|no session found",
    AgentErrorKind.BILLING: r"credit balance|insufficient[_ ]quota|quota exceeded|current quota"
    r"|billing[_ ](?:error|hard|not|details)|payment required",
    AgentErrorKind.CONTEXT_TOO_LONG: r"prompt[_ ](?:is[_ ])?too[_ ]long"
    r"|context[_ ]length[_ ]exceeded"
    r"|maximum context length|context[_ ]window|input is too long|request_too_large",
    AgentErrorKind.RATE_LIMIT: r"rate[_ -]?limit|too many requests|usage limit"
    r"|hit your (?:\w+ )?limit",
    AgentErrorKind.OVERLOAD: r"overloaded|high demand|server[_ ]error|bad gateway"
    r"|service unavailable|gateway time-?out",
    AgentErrorKind.AUTHENTICATION: r"authentication|unauthori[sz]ed|forbidden|oauth token"
    r"|permission_error|(?:invalid|incorrect|missing|no) (?:x-)?api[ -]?key"
    r"|please run /login|not logged in|failed to authenticate",
    AgentErrorKind.UNKNOWN_MODEL: r"model[_ ]not[_ ]found|model `?[\w./:-]+`? does not exist"
    r"|no such model|selected model|unknown model|^model: |model \"[^\"\n]{1,200}\" not found"
    r"|'[^'\n]{1,200}' model is not supported",
    AgentErrorKind.REFUSED: r"\brefusal\b|usage policy|content[_ ]filter|content policy",
    AgentErrorKind.TURNS: r"maximum number of turns",
    AgentErrorKind.NETWORK: r"\b(?:econnrefused|econnreset|enotfound|etimedout)\b|fetch failed"
    r"|socket hang up|connection (?:error|refused|reset)|stream disconnected|error sending request"
    r"|empty or malformed response|network error|unable to connect",
    AgentErrorKind.OUT_OF_MEMORY: r"out of memory|OutOfMemory|MemoryError\b|\bbad_alloc\b"
    r"|\bENOMEM\b"
    r"|cannot allocate memory|failed to allocate memory|memory allocation of \d+ bytes failed"
    r"|memory exhausted|allowed memory size of \d+ bytes exhausted|insufficient memory for",
}
"""Searched in this order, only in texts of errors, never in answers."""
COMPILED_PATTERNS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for kind, pattern in ERROR_PATTERNS.items()
)
OWN_MEMORY = re.compile(ERROR_PATTERNS[AgentErrorKind.OUT_OF_MEMORY], re.IGNORECASE)
STATUS_KINDS = {
    401: AgentErrorKind.AUTHENTICATION,
    402: AgentErrorKind.BILLING,
    403: AgentErrorKind.AUTHENTICATION,
    404: AgentErrorKind.UNKNOWN_MODEL,
    408: AgentErrorKind.NETWORK,
    413: AgentErrorKind.CONTEXT_TOO_LONG,
    429: AgentErrorKind.RATE_LIMIT,
}
AMBIGUOUS_STATUSES = frozenset({400, 404, 422, 429})
"""Statuses with several meanings; 429 may also mean that no credit is left."""
STATUS = re.compile(
    r"(?:\bstatus:?(?: code)?:? |\berror(?: code)?:? |\bhttp |\bapi error[^\n(]{0,80}\()"
    r"([45]\d\d)\b",
    re.IGNORECASE,
)
LEADING_STATUS = re.compile(r"\s*([45]\d\d)\b")
"""Start of an error reported by an agent; in other output it may be any number."""
BANNER = re.compile(
    r"\s*(?:\[?API Error(?::| \(?\d{3})|Invalid API key\b|Credit balance is too low"
    r"|Prompt is too long\b|Claude(?: AI)? usage limit reached|You've hit your \w*\s?limit"
    r"|OAuth token (?:has expired|revoked)|Failed to authenticate\b|Not logged in\b"
    r"|Please run /login\b|Repeated \d{3} \w+ errors|There's an issue with the selected model"
    r"|Error(?: code)?: [45]\d\d(?=\s*\Z|:|\s+(?:[-{\"<]|(?-i:[A-Z]))))",
    re.IGNORECASE,
)
ERROR_FIELDS = frozenset({"type", "error", "request_id"})
RESET = re.compile(r"limit reached\|(\d{10})\b")


def classify(words: str, status: int | None = None, *, guess: bool = False) -> AgentErrorKind:
    """Return the kind of an error, from its text and the status, if any.

    With `guess`, the text may not be about a provider at all.
    """
    words = words[: 4 * MAX_BANNER]
    first = None if guess else LEADING_STATUS.match(words)
    if status is None and (found := first or STATUS.search(words)):
        status = int(found[1])
    by_words = next((kind for kind, pattern in COMPILED_PATTERNS if pattern.search(words)), None)
    if status is None:
        return by_words or AgentErrorKind.OTHER
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return AgentErrorKind.OVERLOAD
    by_status = STATUS_KINDS.get(status, AgentErrorKind.OTHER)
    return by_words or by_status if status in AMBIGUOUS_STATUSES else by_status


def classify_script_error(words: str) -> AgentErrorKind:
    """Return the kind of an error of a program that has no provider."""
    return AgentErrorKind.OUT_OF_MEMORY if OWN_MEMORY.search(words) else AgentErrorKind.OTHER


def is_banner(text: str) -> bool:
    """Whether an answer consists only of a provider's error message."""
    if len(text) > MAX_BANNER:
        return False
    return BANNER.match(text) is not None or _is_error_body(text)


def _is_error_body(text: str) -> bool:
    """Whether a text is the JSON body of a provider's error response."""
    record = parse(text.encode("utf-8", "replace"))
    if record is None or not record.keys() <= ERROR_FIELDS:
        return False
    error = record.get("error")
    return bool(mapping(error).keys() & {"type", "message", "code"}) or (
        isinstance(error, str) and classify(error) is not AgentErrorKind.OTHER
    )


def reset_in(text: str) -> datetime | None:
    """Return when a limit is lifted, if the text says so."""
    found = RESET.search(text)
    return instant(float(found[1])) if found else None


def instant(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as an instant; None if they are out of range."""
    if seconds is None or not 0 < seconds < LATEST_RESET:
        return None
    return datetime.fromtimestamp(seconds, UTC)
