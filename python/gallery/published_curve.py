# %% [markdown]
# # A published curve, simulated again
#
# `homa.figures()` names the figures that can be simulated again. Each is compared with its paper
# number by number, and drawn as the paper drew it, with the published points beside our curves.

# %%
import os

import homa

FIGURE = os.environ.get("GALLERY_FIGURE", "homa-fig10-w3")
OUT = os.environ.get("GALLERY_OUT", "gallery")

for name, shows in homa.figures().items():
    print(f"{name:18} {shows}")

# %% [markdown]
# A quick look takes minutes and leaves tails undecided; without `quick` it takes as long as the
# paper's own runs. A run that is stopped goes on where it was.

# %%
(figure,) = homa.repro(FIGURE, quick=True, compared=True, out=f"{OUT}/figure", progress=True)
figure

# %% [markdown]
# The numbers one by one: `pass` is None where a short run decides nothing.

# %%
for check in figure.checks:
    print(check["metric"], check["published"], check["measured"], check["tolerance"], check["pass"])

# %% [markdown]
# Every drawing is an SVG document.

# %%
for number, chart in enumerate(figure.charts):
    with open(f"{OUT}/figure/{number}.svg", "w") as file:
        file.write(chart)
