"""Static files of the pages, cached by their content and compressed.

Pages link to a file by a URL with the hash of its content, so that browsers keep it until it changes.
"""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

_CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class _StaticFile(NamedTuple):
    content: bytes
    compressed: bytes
    content_type: str
    version: str
    """Start of the SHA-256 of the content."""


@cache
def _read_static_files() -> Mapping[str, _StaticFile]:
    static_files = {}
    for path in (files(__package__) / "static").iterdir():
        content_type = _CONTENT_TYPES.get(path.name.rpartition(".")[2])
        if content_type is not None:
            content = path.read_bytes()
            version = sha256(content).hexdigest()[:16]
            static_files[path.name] = _StaticFile(content, gzip.compress(content, mtime=0), content_type, version)
    return static_files


def static_url(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{name}?v={_read_static_files()[name].version}"


class StaticFileApp:
    """ASGI application that serves the static files of the package and nothing else."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a file; raise 404 for an unknown name and 405 for another method than GET."""
        # A mounted application finds the part of the path that is left after its root.
        name = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix("/")
        if scope["method"] != "GET":
            raise HTTPException(405)
        file = _read_static_files().get(name)
        if file is None:
            raise HTTPException(404)
        request_headers = dict(scope["headers"])
        # No cookie decides on the content, so that shared caches may keep it. Without the version, browsers ask again.
        version = parse_qs(scope["query_string"].decode("latin-1")).get("v", [""])[0]
        headers = {
            "cache-control": "public, max-age=31536000, immutable" if version == file.version else "no-cache",
            "etag": f'"{file.version}"',
            "vary": "accept-encoding",
        }
        if request_headers.get(b"if-none-match", b"").decode("latin-1") == headers["etag"]:
            response = Response(status_code=304, headers=headers)
        elif b"gzip" in request_headers.get(b"accept-encoding", b""):
            headers["content-encoding"] = "gzip"
            response = Response(file.compressed, headers=headers, media_type=file.content_type)
        else:
            response = Response(file.content, headers=headers, media_type=file.content_type)
        await response(scope, receive, send)
