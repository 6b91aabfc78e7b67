"""A server of archives by the Open Inference Protocol; needs ``popc-runtime[serve]``."""

__all__: list[str] = []
