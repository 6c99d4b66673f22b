# %% [markdown]
# # What would my tail be?
#
# Message sizes as they were measured, on a topology of one's own: two racks behind one thin link.

# %%
import os

import homa

MESSAGES = int(os.environ.get("GALLERY_MESSAGES", 100_000))

# %% [markdown]
# Sizes may be any sequence: a column of a data frame, an array, a list. Here they are drawn; with a
# log at hand, `homa.Sizes(frame["bytes"])` is all.

# %%
import random

draw = random.Random(1)
observed = [round(draw.lognormvariate(7, 2)) + 1 for _ in range(5000)]
sizes = homa.Sizes(observed)

# %% [markdown]
# Links by name: `h` and a number is a host, all others are switches. The core runs at a tenth of
# what the hosts of a rack could send.

# %%
hosts = 8
links = {
    "from": [f"h{host}" for host in range(hosts)] + ["left"],
    "to": ["left" if host < hosts / 2 else "right" for host in range(hosts)] + ["right"],
    "gbps": [25] * hosts + [10],
    "delay_ns": [500] * hosts + [250],
}
topology = homa.Graph(links)

# %%
results = {
    scheme: homa.simulate(
        scheme=scheme,
        workload=sizes,
        topology=topology,
        load=0.15,
        messages=MESSAGES,
        set={"slowdown": "idle", "measures.queues": True},
    )
    for scheme in ("homa", "dctcp")
}
results["homa"]

# %% [markdown]
# `samples` has every message, `buckets` a row for each hundredth of them by size. Both are memory
# that pandas and polars read where it lies.

# %%
for scheme, result in results.items():
    print(f"{scheme:6} p99 {result.summary['slowdown_p99']:.2f} times the idle time")
    small = [
        us
        for size, us in zip(result.samples["bytes"], result.samples["latency_us"], strict=True)
        if size < 1000
    ]
    print(f"       slowest message under 1 kB: {max(small):.0f} µs")
