"""What an STS answers to AssumeRoleWithWebIdentity: a session, or why there is none; pure, and hostile input.

Life is counted from the answer's own `Date`, so that a wrong clock on either side shortens or lengthens nothing.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

from lead_protocol.exit_codes import SET_CLOCKS
from lead_protocol.store.credentials import Credentials
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.renewed_credentials import Session
from lead_protocol.store.s3_answers import NOT_XML, TryAgain

MAX_ANSWER_BYTES = 64 * 1024
MAX_TOKEN_CHARS = 16 * 1024
_TOKEN = re.compile(r"eyJ[A-Za-z0-9_.-]*")  # base64 of `{"`, as every JWT begins
_PRINTABLE = re.compile(r"[!-~]+")
# Codes that may pass by themselves: of AWS, whose identity provider did not answer, and of any server that is busy.
_TRY_AGAIN_CODES = {"IDPCommunicationError", "Throttling", "ThrottlingException", "InternalError", "InternalFailure"}
_LARGEST_SKEW = timedelta(minutes=5)


class _NoDocumentType(ElementTree.TreeBuilder):
    """Refuses a document type, without which there are no entities to expand."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("a document type")


def parse_session(headers: Mapping[str, str], body: bytes, *, asked_s: float, where: str, now: datetime) -> Session:
    """Returns the session of a good answer, of at most `asked_s` seconds; raises TryAgain naming what is wrong."""
    root = _parse(body)
    found = None if root is None else _descendant(root, "Credentials")
    if found is None:
        raise TryAgain(f"{where}: the answer is not that of an STS; check the STS endpoint", uncertain=False)
    access_key = _field(found, "AccessKeyId", 256, where)
    secret_key = _field(found, "SecretAccessKey", 256, where)
    token = _field(found, "SessionToken", MAX_TOKEN_CHARS, where)
    life_s = _life_s(_field(found, "Expiration", 64, where), headers, now, where)
    return Session(Credentials(access_key, secret_key, token), min(life_s, asked_s))


def explain_refusal(status: int, headers: Mapping[str, str], body: bytes, *, where: str, now: datetime) -> Exception:
    """Returns the TryAgain or StoreDenied that a failed answer means; `where` names what was asked for.

    An answer that is not an STS's refuses nobody, as with S3: TryAgain, but where a person must act in any case.
    """
    root = _parse(body)
    error = None if root is None else _descendant(root, "Error")
    code, detail = ("", "") if error is None else (_shown(_text(error, "Code"))[:80], _shown(_text(error, "Message")))
    answered = f"{where}: the STS answered {status} {code}".rstrip() + (f" ({detail})" if detail else "")
    if 300 <= status < 400:
        return StoreDenied(f"{answered}, a redirect, which is refused; set the final STS endpoint", of_key=True)
    if status >= 500 or status in (408, 425, 429) or code in _TRY_AGAIN_CODES:
        return TryAgain(answered, uncertain=False)
    if error is None and status not in (401, 403):
        no_sts = "this is no STS: check the profile's stsEndpoint; a gateway may have answered in the store's place"
        return TryAgain(f"{answered}; {no_sts}", uncertain=False)
    skew = _ahead(headers, now)
    clocks = f"; {SET_CLOCKS}" if abs(skew) > _LARGEST_SKEW else ""
    remedy = "check that the store trusts the cluster's tokens, the profile's role ARN, and what the role allows"
    return StoreDenied(f"{answered}; {remedy}{clocks}", of_key=True)


def _parse(body: bytes) -> ElementTree.Element | None:
    try:
        return ElementTree.fromstring(body, ElementTree.XMLParser(target=_NoDocumentType()))
    except NOT_XML:
        return None


def _life_s(text: str, headers: Mapping[str, str], now: datetime, where: str) -> float:
    try:
        end = datetime.fromisoformat(text)
        end = end if end.tzinfo else end.replace(tzinfo=UTC)
        life_s = (end - _server_time(headers, now)).total_seconds()
    except (ValueError, OverflowError) as error:
        raise TryAgain(f"{where}: Expiration is {_shown(text)}, expected an ISO 8601 time", uncertain=False) from error
    if life_s <= 0:
        raise TryAgain(f"{where}: the credentials ended {-life_s:.0f} s before the answer", uncertain=False)
    return life_s


def _server_time(headers: Mapping[str, str], now: datetime) -> datetime:
    try:
        time = parsedate_to_datetime(headers.get("Date", ""))
    except (TypeError, ValueError, OverflowError):
        return now
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _ahead(headers: Mapping[str, str], now: datetime) -> timedelta:
    return now - _server_time(headers, now)


def _field(parent: ElementTree.Element, name: str, longest: int, where: str) -> str:
    text = _text(parent, name)
    if not text:
        raise TryAgain(f"{where}: the answer holds no {name}; check the STS endpoint", uncertain=False)
    if len(text) > longest or not _PRINTABLE.fullmatch(text):
        raise TryAgain(
            f"{where}: {name} has {len(text)} characters, expected at most {longest}, all of them printable ASCII",
            uncertain=False,
        )
    return text


def _descendant(root: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next((element for element in root.iter() if element.tag.rpartition("}")[2] == name), None)


def _text(parent: ElementTree.Element, name: str) -> str:
    for child in parent:
        if child.tag.rpartition("}")[2] == name:
            return (child.text or "").strip()
    return ""


def _shown(text: str) -> str:
    """Returns a short text for a message, without any token that the server repeats."""
    return _TOKEN.sub("<token>", "".join(character if character.isprintable() else "?" for character in text))[:200]
