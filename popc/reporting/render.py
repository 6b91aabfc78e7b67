"""The report as one HTML file that needs nothing else.

The file holds a charting library, plotly, packed, and our own script.  A policy in its head names
both by their hashes and forbids everything else, so that a name in a hostile model cannot become
code, and the page asks no other machine for anything.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from gzip import compress
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.util import find_spec
from typing import Any, Final

from popc.printable import printable, printable_data
from popc.reporting.columns import page_data
from popc.reporting.profile import Profile
from popc_runtime.errors import ResourceError

__all__ = ["render_page"]

_SCRIPTS: Final = ("tables.js", "charts.js", "main.js")
_SLOT: Final = re.compile(r"\[\[([a-z]+)\]\]")


def render_page(profile: Profile) -> str:
    """The page.

    Raises:
        UsageError: the archive does not know what the program costs.
        ResourceError: plotly is not installed.
    """
    library = _library()
    script = "\n".join(map(_part, _SCRIPTS))
    return _filled(
        _part("page.html"),
        {
            "title": escape(printable(f"{profile.name}: report")),
            "policy": escape(_policy(library, script)),
            "style": _part("page.css"),
            "data": _as_script(printable_data(page_data(profile))),
            "packed": b64encode(compress(library.encode(), mtime=0)).decode(),
            "script": script,
        },
    )


def _library() -> str:
    if find_spec("plotly") is None:
        raise ResourceError(
            "plotly, which draws the charts of the page, is not installed",
            hint="pip install 'popc[report]'; reports as text and JSON do not need it",
        )
    from plotly.offline import get_plotlyjs

    library: str = get_plotlyjs()
    assert not re.search("</script|<!--", library, re.IGNORECASE), "it can stand in a script"
    return library


def _part(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(
        f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _as_script(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can end."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """``template`` with its slots filled, once: slots in a part are not looked at."""
    return _SLOT.sub(lambda slot: parts[slot.group(1)], template)
