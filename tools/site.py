"""Build the site of the documentation, or manual pages: Sphinx, with MyST for Markdown.

    python -m tools.site build/site        # build/site/html/index.html
    python -m tools.site build/man --man   # build/man/man/popc.1, popc-compile.1, ...

The pages of the repository are copied into a folder of sources, where they lie as they do here, so
that their links hold; pages that the code tells (verbs, errors, the interface of Python) are added.
A link or a reference that leads nowhere ends the build.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

import popc
import popc_runtime
from popc.cli.root import root as cli
from popc.cli.verbs import GROUPS, VERBS
from tools.errors_page import errors_page
from tools.version import changelog_version

__all__ = ["PAGES", "main", "stage"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_COPIED: Final = (
    "docs/**/*.md", "docs/schemas/*.json", "samples/*.py", "samples/*.toml", "*.md",
    "runtime/README.md", "facade/README.md", "Dockerfile", "LICENSE", "popc/compiler.py",
    ".github/workflows/*.yml",
)  # fmt: skip
# The way through the pages; what is not named here fails the build as a page that nobody finds.
PAGES: Final = {
    "Begin": ["docs/tutorial", "README", "docs/emulated", "docs/guides", "docs/images"],
    "Look up": [
        "commands", "errors", "docs/options", "python/popc", "python/popc_runtime",
        "python/custom", "python/errors", "schemas", "docs/dialects", "docs/patterns",
        "docs/popart",
    ],
    "Compile and run": [
        "docs/caching", "docs/native", "docs/numerics", "docs/classical", "docs/custom",
        "docs/serving", "docs/signing", "docs/compatibility", "runtime/README", "facade/README",
    ],
    "Train": ["docs/training", "docs/scale"],
    "The emulated IPU": [
        "docs/costs", "docs/fitting", "docs/tuning", "docs/reports", "docs/products",
        "docs/batch_serialization", "docs/outlining", "docs/memory", "docs/transfers",
        "docs/pipelining",
    ],
    "The project": [
        "CHANGELOG", "SECURITY", "ARCHITECTURE", "CONTRIBUTING", "RELEASING", "docs/README",
    ],
}  # fmt: skip
_CONFIG: Final = """
project = "popc"
author = "the authors of popc"
copyright = "the authors of popc"
release = version = {version!r}
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "popc {version}"
html_copy_source = False
default_role = "literal"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # drawings and layers are in no language
man_pages = {manuals!r}
man_make_section_directory = False


def setup(app):
    # pages of modules say in their own words what their docstrings say with drawings
    app.connect("autodoc-process-docstring", _clear)


def _clear(app, what, name, obj, options, lines):
    if what == "module":
        del lines[1:]
"""
_ELSEWHERE: Final = ("__version__", "custom", "errors")  # a page of its own, or no name
_TO_SCHEMAS: Final = re.compile(r"\]\((?:\.\./)*(?:docs/)?schemas\)")
_PUBLIC: Final = {"popc": popc, "popc_runtime": popc_runtime}


def main(arguments: Sequence[str]) -> int:
    """Build it; the exit code of Sphinx, which is not 0 if anything is amiss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--man", action="store_true", help="manual pages")
    given = parser.parse_args(arguments)
    shutil.rmtree(given.folder, ignore_errors=True)
    source = given.folder / "source"
    stage(source)
    kind = "man" if given.man else "html"
    command = [sys.executable, "-m", "sphinx", "--builder", kind, "--fail-on-warning"]
    options = ["--keep-going", "--quiet", str(source), str(given.folder / kind)]
    return subprocess.run([*command, *options], check=False).returncode


def stage(source: Path) -> None:
    """Put the sources of the site together in a folder."""
    for pattern in _COPIED:
        for file in sorted(_ROOT.glob(pattern)):
            target = source / file.relative_to(_ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
            if target.suffix == ".md":  # a folder is no page
                text = target.read_text(encoding="utf-8")
                target.write_text(_TO_SCHEMAS.sub("](/schemas.md)", text), encoding="utf-8")
    _write(source / "index.md", _index(source))
    _write(source / "errors.md", errors_page())
    files = sorted(source.glob("docs/schemas/*.json"))
    links = [f"* [{file.name}](docs/schemas/{file.name})" for file in files]
    _write(source / "schemas.md", "\n".join(["# Schemas\n", *links, ""]))
    _write(source / "commands.md", _commands())
    for verb in VERBS:
        _write(source / "commands" / f"popc-{verb}.md", f"# popc {verb}\n\n{_verb(verb)}")
    for name, page in _python().items():
        _write(source / "python" / f"{name}.md", page)
    manuals = [("commands", "popc", "compile, run and inspect ONNX models", "", 1)]
    manuals += [
        (f"commands/popc-{name}", f"popc-{name}", verb.summary.rstrip("."), "", 1)
        for name, verb in VERBS.items()
    ]
    config = _CONFIG.format(version=changelog_version(), manuals=manuals)
    _write(source / "conf.py", config)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _tree(pages: Sequence[str], caption: str = "") -> str:
    head = f":caption: {caption}\n" if caption else ""
    return "\n".join(["```{toctree}", f":maxdepth: 1\n{head}", *pages, "```\n"])


def _index(source: Path) -> str:
    inside = [f"docs/inside/{page.stem}" for page in sorted((source / "docs/inside").glob("*.md"))]
    listed = {page for pages in PAGES.values() for page in pages}
    others = [page for page in sorted(source.glob("docs/*.md"))
              if f"docs/{page.stem}" not in listed]  # fmt: skip
    trees = [_tree(pages, caption) for caption, pages in PAGES.items()]
    trees.append(_tree([*(f"docs/{page.stem}" for page in others), *inside], "More"))
    return "\n".join([_WELCOME, *trees])


_WELCOME: Final = """# popc

popc compiles ONNX models ahead of time into single files, which a small runtime \
loads and runs; it plans them for an emulated IPU. [Begin with the tutorial](docs/tutorial.md), \
look up [an option](docs/options.md), [a verb](commands.md) or [an error](errors.md).
"""


def _commands() -> str:
    parts = ["# Commands\n", _help([])]
    for group in GROUPS:
        verbs = [name for name, verb in VERBS.items() if verb.group == group]
        parts.append(f"## {group.capitalize()}\n")
        parts += [f"* [popc {name}](commands/popc-{name}.md): {VERBS[name].summary}"
                  for name in verbs]  # fmt: skip
        parts.append("")
    parts.append(_tree([f"commands/popc-{name}" for name in VERBS]).replace(
        ":maxdepth: 1", ":maxdepth: 1\n:hidden:"))  # fmt: skip
    return "\n".join(parts)


def _verb(verb: str) -> str:
    command = cli.get_command(click.Context(cli), verb)
    parts = [_help([verb])]
    if isinstance(command, click.Group):
        parts += [f"## popc {verb} {name}\n\n{_help([verb, name])}"
                  for name in command.list_commands(click.Context(command))]  # fmt: skip
    return "\n".join(parts)


def _help(words: Sequence[str]) -> str:
    command: click.Command = cli
    context = click.Context(cli, info_name="popc")
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, word
        context, command = click.Context(found, info_name=word, parent=context), found
    context.terminal_width = context.max_content_width = 96
    return f"```text\n{command.get_help(context)}\n```\n"


def _python() -> dict[str, str]:
    pages = {}
    for name, package in _PUBLIC.items():
        names = [
            each for each in package.__all__ if each not in {"__version__", "custom", "errors"}
        ]
        pages[name] = f"# {name}\n\n" + "\n".join(_documented(package, each) for each in names)
    for name in ("custom", "errors"):
        directive = f".. automodule:: popc_runtime.{name}\n   :members:\n   :show-inheritance:\n"
        pages[name] = f"# popc_runtime.{name}\n\n{_rst(directive)}"
    return pages


def _documented(package: object, name: str) -> str:
    """A public name by the module that it stands in, under the name that users import."""
    value = getattr(package, name)
    kind = "class" if isinstance(value, type) else "function"
    module = package.__name__  # type: ignore[attr-defined]
    members = "   :members:\n" if kind == "class" and name != "PopcError" else ""
    directive = f".. auto{kind}:: {module}.{name}\n{members}"
    return f"## {name}\n\n{_rst(directive)}"


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}```\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
