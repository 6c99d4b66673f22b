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

# %% [markdown]
# One simulation for each transport; the figures show both.

# %%
sweep = homa.sweep(
    {
        "title": "Two racks behind one thin link",
        "scenario": {
            "traffic": {"workload": sizes},
            "load": {"fraction": 0.15},
            "stop": {"messages": MESSAGES},
            "fabric": {"shape": topology},
            "slowdown": "idle",
            "measures": {"queues": True},
        },
        "axes": {"scheme": ["homa", "dctcp"]},
    }
)
sweep

# %% [markdown]
# `summary` has a row for each simulation, `buckets` one for each hundredth of its messages by size.
# Both are memory that pandas and polars read where it lies.

# %%
for scheme, p99 in zip(sweep.summary["scheme"], sweep.summary["slowdown_p99"], strict=True):
    print(f"{scheme:6} p99 {p99:.2f} times the idle time")
    columns = (sweep.buckets[name] for name in ("scheme", "max_bytes", "latency_p99_us"))
    rows = zip(*columns, strict=True)
    small = [us for of, size, us in rows if of == scheme and size < 1000 and us is not None]
    print(f"       p99 of messages under 1 kB: at most {max(small):.0f} µs")
