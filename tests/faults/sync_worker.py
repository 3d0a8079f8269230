"""A program under ``power_shim.c``: the workload while its syncs fail, or a reader of what it left.

``sync_worker.py work ROOT OUT PLAN`` is ``campaign_calls.work``; ``serve ROOT OUT PLAN`` recovers
the store, writes every message that it is given there into OUT, and is killed with it open.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path

import rmqstore
from faults import campaign_calls
from faults.framework import SANITIZED
from faults.model import messages_of


def serve(root: Path, out: Path, plan: campaign_calls.Plan) -> None:
    variant = plan[0]
    try:
        store = rmqstore.open(root, "r+", config=variant.config())
    except (rmqstore.StoreError, OSError):
        return
    with out.open("w") as told:
        for topic, queue_id, messages in messages_of(store):
            for message in messages:
                digest = message.raw_body.hex()
                print(topic, queue_id, message.queue_offset, digest, file=told)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    verb, root, out, name = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    if not SANITIZED:  # which says more
        faulthandler.enable()
    signal.alarm(campaign_calls.LIMIT)
    plan = campaign_calls.plan_of(name)
    if verb == "serve":
        serve(Path(root), Path(out), plan)
    else:
        passed, failed = campaign_calls.work(Path(root), Path(out), plan)
        print(passed, failed)


if __name__ == "__main__":
    main()
