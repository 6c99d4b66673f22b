#!/usr/bin/env bash
# Merges the folders of a sweep's shards, from machines that share no file system.
#
#   contrib/cluster/merge.sh PLAN.toml DIR SHARD_DIR...
#
# Copies their results into DIR and runs the missing simulations. The tables and the page are the same
# as if the sweep had run in one place. HOMA names the program.
set -euo pipefail

plan=${1:?give a plan: merge.sh PLAN.toml DIR SHARD_DIR...}
out=${2:?give a folder for all: merge.sh PLAN.toml DIR SHARD_DIR...}
shift 2
mkdir -p "$out/cells"
for shard in "$@"; do
    find "$shard/cells" -name '*.json' ! -name '.*' -exec cp -t "$out/cells" {} +
done
exec "${HOMA:-homa}" sweep "$plan" --out "$out"
