"""A hash over the definition of the format.

The version says what readers may expect.  Between releases the definition changes more often than
the version; the hash then tells two builds apart that would misread each other's archives.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from enum import Enum
from typing import Any, Final

from popc_runtime.format import program
from popc_runtime.format.codec import Codec
from popc_runtime.format.dtypes import DType

__all__ = ["PROGRAM_COLUMNS", "SCHEMA_HASH"]
