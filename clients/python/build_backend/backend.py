"""Builds the wheel: the package, and the `tidelock` binary that cargo has built.

maturin would do the same, but it builds the binary again, with its own settings, and has to be downloaded first. The
binary is the file in TIDELOCK_BINARY, else the newest of target/release and target/debug of the repository.
"""

import base64
import hashlib
import os
import platform
import re
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
NAME = "tidelock"


def _version():
    return re.search(r'^version = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.M).group(1)


def _binary():
    named = os.environ.get("TIDELOCK_BINARY")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    built = [path for path in (target / "release" / NAME, target / "debug" / NAME) if path.is_file()]
    if named:
        return Path(named)
    if not built:
        raise SystemExit("build the binary first: cargo build --release -p tidelock-cli, or set TIDELOCK_BINARY")
    return max(built, key=lambda path: path.stat().st_mtime)


def _tag():
    """The package is the same for every Python; the binary is not for every machine."""
    machine = platform.machine()
    if platform.system() == "Darwin":
        return f"py3-none-macosx_11_0_{machine}"
    return f"py3-none-{os.environ.get('TIDELOCK_WHEEL_PLATFORM', f'linux_{machine}')}"


def _metadata():
    readme = (HERE / "README.md").read_text()
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {_version()}\n"
        "Summary: Distributed locks on the store you already run, with fencing tokens and a signal on loss\n"
        "License: MIT OR Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + readme
    )


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version, tag = _version(), _tag()
    info = f"{NAME}-{version}.dist-info"
    package = HERE / "src" / NAME
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted(package.iterdir()) if path.suffix != ""}
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tidelock\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    program = f"{NAME}/bin/{NAME}"
    files[program] = _binary().read_bytes()
    record = f"{info}/RECORD"
    hashes = {
        path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for path, data in files.items()
    }
    lines = [f"{path},sha256={hashes[path]},{len(files[path])}\n" for path in files]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    name = f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path == program else 0o100644) << 16
            wheel.writestr(entry, data, compresslevel=1)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("there is no source distribution: the wheel carries a binary that cargo builds")
