"""query: one key of half a million, message found and compared."""

import random

import workloads

COUNT = 500_000
ASKED = 20_000


def bench_query(measure, stores):
    store = stores()
    workloads.fill(store, 128, COUNT, with_keys=True)
    wanted = random.Random(3).sample(workloads.keys(COUNT), ASKED)
    measure(workloads.query_each, ASKED, lambda: (store, wanted))
