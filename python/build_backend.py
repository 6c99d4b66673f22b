"""What pip builds the wheel with: maturin, told to leave the builder's home out of it.

Messages of panics name source files. Those of this repository are relative already; those of crates
that cargo downloaded lie below its home, which differs between users. With that replaced, the same
commit and compiler give the same wheel in any folder (``cargo xtask release --check``).

Left out: a build with ``RUSTFLAGS`` replaces these flags, too.
"""

import os

from maturin import *  # noqa: F403 - the functions that pip calls


def _leave_out_home() -> None:
    default = os.path.join(os.path.expanduser("~"), ".cargo")
    home = os.path.abspath(os.environ.get("CARGO_HOME") or default)
    # Words of this variable end at spaces. Flags of configuration files are kept beside it.
    if " " not in home:
        flags = [os.environ.get("CARGO_BUILD_RUSTFLAGS"), f"--remap-path-prefix={home}=/cargo"]
        os.environ["CARGO_BUILD_RUSTFLAGS"] = " ".join(filter(None, flags))


_leave_out_home()
