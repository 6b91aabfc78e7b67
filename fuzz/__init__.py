"""Coverage-guided fuzzing of what reads strangers' data; `docs/inside/fuzzing.md` says how."""
