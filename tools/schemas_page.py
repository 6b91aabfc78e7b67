"""Write docs/schemas/: a JSON Schema for the document of each verb, and one for options files.

python -m tools.schemas_page [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from popc.cli.schemas import DOCUMENTS, document_schema, options_file_schema

__all__ = ["schema_files"]


def schema_files() -> dict[str, str]:
    """The content of all files by name."""
    schemas: dict[str, Any] = {name: document_schema(name) for name in DOCUMENTS}
    schemas["options-file"] = options_file_schema()
    return {
        f"{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schema_files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
