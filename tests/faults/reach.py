"""The known defects of ``tests/faults/plants``, and the campaigns that must find each."""

from __future__ import annotations

# Each campaign that is named must find the defect by itself.
REACH: dict[str, tuple[str, ...]] = {
    "ack-before-sync": ("power",),
    "retry-failed-sync": ("syncs",),
    "checkpoint-before-queues": ("power",),
    "no-directory-sync-after-roll": ("power",),
    "no-erase-of-cut-tail": ("kill-again",),
    "abort-after-first-change": ("machine",),
    "queue-offset-used-by-refused-put": ("calls",),
    "unit-before-record": ("beside",),
    "index-not-synced-at-close": ("power",),
    "lock-after-load": ("machine",),
    "zeros-after-reserved": ("beside",),
    "unlink-held-mapping": ("machine",),
    "count-of-lost": ("lost",),
    "staged-record-twice": ("sink",),
    "a1": ("flips",),
    "a2": ("power",),
    "a3": ("machine",),
    "a4": ("power",),
    "a5": ("flips",),
    "a6": ("flips",),
    "a7": ("power", "machine"),
    "a8": ("flips",),
    "a9": ("flips",),
    "a10": ("power",),
    "a10-enomem": ("syncs",),
    "a11": ("power",),
    "a12": ("machine",),
    "a13": ("disk-full",),
    "a14": ("soak",),
    "a15": ("beside",),
    "a16": ("beside",),
    "a18": ("power",),
}
