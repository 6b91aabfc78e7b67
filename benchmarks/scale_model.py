"""The time of a training step on many processes: a formula, and a simulation to check it with.

Processes are P, each with L replicas; a gradient has B bytes.  An all-reduce is two exchanges (see
`popc_runtime.kernels.collectives_between`): each process sends each other one the elements that
that one sums up, of its L replicas, and then the sums.  In an exchange a process sends its P - 1
messages one after another, first to the process behind it.  A message takes `overhead` seconds of
its sender, `1 / bandwidth` seconds a byte of its sender and of its receiver, who receive and send
at the same time, and `latency` seconds on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Network", "all_reduce_seconds", "simulated_all_reduce", "simulated_step"]


@dataclass(frozen=True)
class Network:
    """A network, as processes see it.

    Attributes:
        latency: Seconds that a message is on its way.
        overhead: Seconds of the sender for each message.
        bandwidth: Bytes a second, of each process in each direction.
        adding: Bytes of operands that a process adds up in a second.
    """

    latency: float
    overhead: float
    bandwidth: float
    adding: float

    def message(self, nbytes: float) -> float:
        """Seconds that a message keeps its sender."""
        return self.overhead + nbytes / self.bandwidth


def all_reduce_seconds(network: Network, processes: int, replicas: int, nbytes: float) -> float:
    """Seconds of an all-reduce of all processes, which begin at once."""
    if processes == 1:
        return replicas * nbytes / network.adding
    part = nbytes / processes
    parts = network.message(replicas * part) + network.message(part)
    sums = processes * replicas * part / network.adding
    return 2 * network.latency + (processes - 1) * parts + sums


def _exchange(network: Network, starts: Sequence[float], nbytes: float) -> list[float]:
    """When each process has all its messages, if each begins to send when ``starts`` says.

    Events are messages that arrive, in the order in which they do; a receiver takes one after
    another.
    """
    processes = len(starts)
    sending, receiving = network.message(nbytes), nbytes / network.bandwidth
    arrivals: list[list[float]] = [[] for _ in starts]
    for rank, start in enumerate(starts):
        for turn in range(1, processes):
            arrivals[(rank + turn) % processes].append(start + turn * sending + network.latency)
    ends = []
    for start, times in zip(starts, arrivals, strict=True):
        free = start
        for time in sorted(times):
            # The last byte of a message; its first came `receiving` before, if the line was free.
            free = max(time, free + receiving)
        ends.append(max(free, start + (processes - 1) * sending))
    return ends


def simulated_all_reduce(
    network: Network, starts: Sequence[float], replicas: int, nbytes: float
) -> list[float]:
    """When each process has the sums, if each has its gradients at the time in ``starts``."""
    processes = len(starts)
    sums = replicas * nbytes / network.adding
    if processes == 1:
        return [starts[0] + sums]
    part = nbytes / processes
    there = _exchange(network, starts, replicas * part)
    return _exchange(network, [time + sums for time in there], part)


def simulated_step(
    network: Network,
    processes: int,
    replicas: int,
    gradients: Sequence[float],
    compute: Callable[[int], float],
) -> tuple[float, float]:
    """Seconds of a step, and the mean of what a process waits and transfers.

    ``compute`` gives the seconds that a process computes before its first all-reduce; then comes
    one for each of ``gradients``, in bytes.
    """
    starts = [compute(rank) for rank in range(processes)]
    times = starts
    for nbytes in gradients:
        times = simulated_all_reduce(network, times, replicas, nbytes)
    waits = [end - start for start, end in zip(starts, times, strict=True)]
    return max(times), sum(waits) / processes
