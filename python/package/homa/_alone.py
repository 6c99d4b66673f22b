"""Refuses to be imported beside another project's package of the same name.

Its distribution is called ``homa``, this one's ``homa-rpc``, and both put their files into one
folder.
"""

from importlib.metadata import PackageNotFoundError, version


def _check() -> None:
    try:
        other = version("homa")
    except PackageNotFoundError:
        return
    raise ImportError(
        f"the distribution 'homa' {other} is installed beside 'homa-rpc', and their files are in "
        "one folder: run 'pip uninstall homa homa-rpc', then install the one that you need"
    )


_check()
