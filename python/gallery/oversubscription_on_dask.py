# %% [markdown]
# # Tail against oversubscription, on a cluster
#
# How thin may the core be? Every number of spines with every seed is a simulation, and Dask runs
# them wherever its workers are: here in two processes of this machine, elsewhere on a cluster, by
# the address of its scheduler alone.

# %%
import os

import homa

try:
    from distributed import Client, LocalCluster
except ImportError as missing:
    raise ImportError("distributed is missing: pip install 'homa-rpc[dask]'") from missing

MESSAGES = int(os.environ.get("GALLERY_MESSAGES", 100_000))
SEEDS = int(os.environ.get("GALLERY_SEEDS", 3))
OUT = os.environ.get("GALLERY_OUT", "gallery")

plan = {
    "title": "Tail against oversubscription",
    "seeds": list(range(1, SEEDS + 1)),
    "scenario": {
        "load": {"fraction": 0.25},
        "stop": {"messages": MESSAGES},
        "traffic": {"workload": "w3"},
        "fabric": {
            "host_link": "10Gbps",
            "fabric_link": "10Gbps",
            "shape": {"kind": "leaf-spine", "racks": 4, "hosts_per_rack": 8, "spines": 8},
        },
    },
    "axes": {
        "scheme": ["homa", "dctcp"],
        # Eight hosts below each TOR: one to four times as much as goes up.
        "fabric.shape.spines": [8, 4, 2],
    },
}

# %% [markdown]
# A worker that is lost costs the simulation it had, which Dask runs again. Results are stored as
# they come; were this notebook ended, the same cell would go on where it was, and so would
# `homa sweep`.


# %%
def run():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        return homa.sweep(plan, client.get_executor(), f"{OUT}/oversubscription", progress=True)


# Dask's own processes import this file where it is run as a script.
sweep = run() if __name__ == "__main__" else None
sweep

# %% [markdown]
# Axes are columns. The order of rows is the plan's, independent of the workers.

# %%
if sweep:
    columns = ("scheme", "fabric.shape.spines", "seed", "slowdown_p99")
    for row in zip(*(sweep.summary[name] for name in columns), strict=True):
        print(*row)

# %% [markdown]
# The page of the folder has all figures.

# %%
if sweep:
    print(homa.report(sweep))
