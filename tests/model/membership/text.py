"""Requests and actors as text, for the steps of a trace."""

from __future__ import annotations

from .brokers import NO_MEMBER, Request

NAMES = ("slot 0", "slot 1", "the driver's id", "lane 0's id", "lane 1's id")
REQUEST_NAMES = {
    "I": "InitProducerId",
    "A": "AddPartitionsToTxn",
    "O": "AddOffsetsToTxn",
    "B": "AddPartitionsToTxn+AddOffsetsToTxn",
    "L": "AddPartitionsToTxn(lanes topic)",
    "P": "Produce",
    "T": "TxnOffsetCommit",
    "C": "OffsetCommit",
    "M": "Produce(records of lanes)",
    "N": "Produce(records of lanes) outside a transaction",
    "E": "EndTxn(commit)",
}


def actor(driver: int, kind: int) -> str:
    return f"D{driver + 1} {('start', 'task', 'stop', 'abandon')[kind]}:"


def describe(m: Request) -> str:
    """A request as text."""
    kind, tid, epoch, member, payload = m
    name = REQUEST_NAMES[kind] + (f" {list(payload)}" if kind in "PTCMN" else "")
    if kind not in "CN":
        name += f" by {NAMES[tid]}" + (f", epoch {epoch}" if kind != "I" else "")
    return name + (f", member {member}" if member != NO_MEMBER else "")
