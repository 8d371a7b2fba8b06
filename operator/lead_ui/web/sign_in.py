"""Signing in with a token: a form sets a cookie that no script reads and that no other site sends."""

from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lead_ui.web.access import NotSignedIn
from lead_ui.web.render import page

COOKIE = "lead-token"
SECURE_COOKIE = f"__Host-{COOKIE}"  # browsers take this name only over TLS, for this host alone
LONGEST_TOKEN = 3500  # characters; browsers keep cookies of 4096
_FORM_BYTES = 16 * 1024
_HOURS = 12 * 3600


def cookie_name(request: Request) -> str:
    """Returns the name of the cookie, by whether the browser came by TLS."""
    return SECURE_COOKIE if _is_secure(request) else COOKIE


def login_page(request: Request, error: str, status: int = HTTPStatus.OK, path: str = "") -> Response:
    """Returns the form; `path`: where to go then."""
    target = path or (request.url.path if request.method == "GET" else "/runs")
    return page(request, "login.html", None, status, error=error, target=_own_path(target), title="Sign in")


async def form(request: Request) -> Response:
    """Shows the form."""
    return login_page(request, "", path=request.query_params.get("next", "/runs"))


async def take_token(request: Request) -> Response:
    """Takes a token, asks the API server whose it is, and keeps it in the browser alone."""
    _refuse_other_sites(request)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _FORM_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A form of more than {_FORM_BYTES} bytes.")
    fields = parse_qs(body.decode("utf-8", "replace"))
    token, target = fields.get("token", [""])[0].strip(), _own_path(fields.get("next", ["/runs"])[0])
    try:
        if len(token) > LONGEST_TOKEN:
            raise NotSignedIn(f"The token has {len(token)} characters; a browser keeps at most {LONGEST_TOKEN}.")
        await request.app.state.access.viewer_of(token)
    except NotSignedIn as error:
        return login_page(request, str(error), HTTPStatus.UNAUTHORIZED, path=target)
    answer = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    answer.set_cookie(cookie_name(request), token, max_age=_HOURS, path="/", secure=_is_secure(request), httponly=True,
                      samesite="strict")  # fmt: skip
    return answer


async def sign_out(request: Request) -> Response:
    """Removes the cookie."""
    _refuse_other_sites(request)
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    for name in (COOKIE, SECURE_COOKIE):
        answer.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="strict")
    return answer


def _refuse_other_sites(request: Request) -> None:
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or (origin and urlsplit(origin).netloc != request.headers.get("host")):
        raise HTTPException(HTTPStatus.FORBIDDEN, "The form was sent by another site.")


def _own_path(path: str) -> str:
    """Returns a path of this site, /runs for anything else."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\", "/login", "/logout")) and path.isprintable()
    return path if is_own else "/runs"


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
