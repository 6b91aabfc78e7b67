"""News of a process that has died or failed, by sockets along a tree of ranks.

MPI says nothing of a process that has died; whoever waits for it waits for ever.  The kernel does:
it closes the sockets of a process, however that ended, and keep-alive packets tell of machines that
are gone.  Each process is connected to its parent and its (at most two) children in a tree, and
passes on what it hears.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from popc_runtime.errors import GroupError

__all__ = ["Notices"]

_TOKEN_BYTES: Final = 16
_RANK_BYTES: Final = 4
_LINGER_MS: Final = 5000  # how long a process that fails waits for its neighbours to hear of it
_LOCAL: Final = "127.0.0.1"


class Notices:
    """The connections of one process to its neighbours.

    ``allgather`` gives the values of all processes; it is used for their addresses, once.
    """

    def __init__(self, rank: int, size: int, allgather: Callable[[Any], list[Any]]) -> None:
        self._rank, self._size = rank, size
        self._peers: dict[int, tuple[int, socket.socket, bytearray]] = {}  # by descriptor
        self._all: dict[int, socket.socket] = {}  # by rank, also those that have ended
        self._failed: tuple[int, str] | None = None
        self._poll = select.poll()
        hosts = allgather(socket.gethostname())
        alone = len(set(hosts)) == 1
        with socket.create_server((_LOCAL if alone else "", 0)) as server:
            told = allgather((server.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES)))
            token = told[0][1]
            if rank:
                parent = (rank - 1) // 2
                host = _LOCAL if hosts[parent] == hosts[rank] else hosts[parent]
                peer = socket.create_connection((host, told[parent][0]))
                peer.sendall(token + rank.to_bytes(_RANK_BYTES, "little"))
                self._add(parent, peer)
            children = {child for child in (2 * rank + 1, 2 * rank + 2) if child < size}
            while children:
                peer, _ = server.accept()
                hello = _read(peer, _TOKEN_BYTES + _RANK_BYTES)
                child = int.from_bytes(hello[_TOKEN_BYTES:], "little")
                if hello[:_TOKEN_BYTES] != token or child not in children:
                    peer.close()  # a stranger
                    continue
                children.remove(child)
                self._add(child, peer)

    def _add(self, rank: int, peer: socket.socket) -> None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        peer.settimeout(0)
        self._all[rank] = peer
        self._peers[peer.fileno()] = (rank, peer, bytearray())
        self._poll.register(peer.fileno(), select.POLLIN)

    def check(self, wait_ms: int = 0) -> None:
        """Look for news, or wait for them.

        Raises:
            GroupError: a process has died or failed.
        """
        for descriptor, _ in self._poll.poll(wait_ms):
            self._hear(descriptor)
        if self._failed is not None:
            rank, text = self._failed
            if text:
                message = f"rank {rank} of {self._size} goes no further: {text}"
            else:
                message = f"rank {rank} of {self._size} has died"
            raise GroupError(
                message,
                subject=f"rank {rank}",
                hint="what it has printed may say why; start all processes again, from the last "
                "checkpoint",
            )

    def _hear(self, descriptor: int) -> None:
        """Read what a neighbour says; its end is news too."""
        rank, peer, heard = self._peers[descriptor]
        try:
            data = peer.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            self._note(rank, "")
            return
        heard += data
        *lines, rest = bytes(heard).split(b"\n")
        heard[:] = rest
        for line in lines:
            self._note(*json.loads(line))

    def _drop(self, descriptor: int) -> None:
        del self._peers[descriptor]
        self._poll.unregister(descriptor)

    def _note(self, rank: int, text: str) -> None:
        """Keep the first news, and pass it on."""
        if self._failed is None:
            self._failed = (rank, text)
            line = json.dumps([rank, text]).encode() + b"\n"
            for _, peer, _ in self._peers.values():
                with suppress(OSError):
                    peer.send(line)  # a few bytes, on a connection that was idle

    def tell(self, text: str) -> None:
        """Let the others know that this process goes no further."""
        self._note(self._rank, text or "it has failed")

    def linger(self) -> None:
        """Wait until all that are connected have come here or have died, for a while.

        The launcher ends all processes as soon as it has seen one fail; before that the others are
        to tell their users why they end.  News of that run up the tree, and down again.
        """
        parent = (self._rank - 1) // 2
        children = [rank for rank, _, _ in self._peers.values() if rank > self._rank]
        if self._wait_for(children):
            self._finish([parent])
            self._wait_for([parent])
        self._finish(children)

    def _wait_for(self, ranks: Collection[int]) -> bool:
        """Wait until neighbours have nothing more to say; False if that takes too long."""
        while any(rank in ranks for rank, _, _ in self._peers.values()):
            events = self._poll.poll(_LINGER_MS)
            for descriptor, _ in events:
                self._hear(descriptor)
            if not events:
                return False
        return True

    def _finish(self, ranks: Collection[int]) -> None:
        """Have nothing more to say to neighbours."""
        for rank, peer in self._all.items():
            if rank in ranks:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close all connections."""
        for descriptor in list(self._peers):
            self._drop(descriptor)
        for peer in self._all.values():
            peer.close()


def _read(peer: socket.socket, count: int) -> bytes:
    data = b""
    peer.settimeout(5)
    with suppress(OSError):
        while len(data) < count and (more := peer.recv(count - len(data))):
            data += more
    return data
