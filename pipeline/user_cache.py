"""Small things that are made once for each user and found by processes of another day: files with a known
text, and folders of links. They are below `XDG_CACHE_HOME`, or `~/.cache`.

The name of each has a mark of what is in it: what is there already is either right or spoilt. Each file, and
each link, comes whole or not at all, for two programs may start at the same time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

FOLDER = "amqp-broker"


def mark(text: str) -> str:
    """A short mark of a text, for a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cached_file(name: str, suffix: str, text: str) -> Path:
    """A file with this text, whose name begins and ends so."""
    return kept_file(Path(f"{name}-{mark(text)}.{suffix}"), text)


def kept_file(name: Path, text: str, cache: Path | None = None) -> Path:
    """A file with this text that can be run, in `cache` (by default the user's). Where that cannot be
    written, in a folder of this process only.
    """
    path = (_cache() if cache is None else cache) / name
    if not _is(path, text):
        try:
            _write(path, text)
        except OSError:
            path = Path(tempfile.mkdtemp(prefix=f"{FOLDER}-")) / name
            _write(path, text)
    return path


def kept_links(name: str, targets: Mapping[str, Path], cache: Path | None = None) -> Path:
    """A folder whose name begins so, with a link of each name to its target. Where it is new, those whose
    links lead nowhere any more are removed. Raises OSError where it cannot be made.
    """
    told = "\n".join(f"{link} {target}" for link, target in sorted(targets.items()))
    folder = (_cache() if cache is None else cache) / f"{name}-{mark(told)}"
    if not folder.exists():
        _tidy(folder.parent, name)
    for link, target in targets.items():
        if not _leads_to(folder / link, target):
            _link(folder / link, target)
    return folder


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache").absolute() / FOLDER


def _is(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o755)
    os.replace(name, path)


def _leads_to(link: Path, target: Path) -> bool:
    try:
        return os.readlink(link) == str(target)
    except OSError:
        return False


def _tidy(cache: Path, name: str) -> None:
    for folder in cache.glob(f"{name}-*"):
        found = list(folder.iterdir())
        if found and all(each.is_symlink() and not each.exists() for each in found):
            shutil.rmtree(folder, ignore_errors=True)


def _link(link: Path, target: Path) -> None:
    """By way of a folder of its own: a link has no name that nobody else has."""
    link.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=link.parent) as made:
        fresh = Path(made) / link.name
        fresh.symlink_to(target)
        os.replace(fresh, link)
