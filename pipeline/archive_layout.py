"""Where an archive keeps its events, and which of its folders count.

    DIR/events/epoch=N/      one batch of the stream; counts when Spark's _SUCCESS is in it
    DIR/compacted/A-B/date=/type=   the batches A to B; counts when the manifest names it
    DIR/archive.json         the manifest, replaced as a whole
    DIR/checkpoint/          the stream's
    DIR/checksums.jsonl      what the broker told of these events (told_checksums.py)
    .../_FILES               in each of the former two: what was written (JSON: octets and SHA-256)

A batch that was compacted counts no more, whether its folder is still there or not: a stream that begins its
last batch again after a kill writes it again, and nobody reads it twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.folders import LocalPath, folder_of, name_within
from amqp_broker.pipeline.told_checksums import Told, note, read_told

if TYPE_CHECKING:
    from amqp_broker.pipeline.hadoop_files import HadoopPath

Place = TypeVar("Place", "LocalPath", "HadoopPath")
"""What the folders are."""

VERSION: Final = 1
_EPOCH: Final = re.compile(r"epoch=(\d+)")
_SUCCESS: Final = "_SUCCESS"
_FILES: Final = "_FILES"


class ArchiveLayout(Generic[Place]):
    """The folders of one archive, on this machine or where a URL says. Raises NoJava for a URL."""

    directory: Place

    @overload
    def __init__(self: ArchiveLayout[LocalPath], directory: Path) -> None: ...
    @overload
    def __init__(self: ArchiveLayout[Any], directory: str) -> None: ...
    def __init__(self, directory: str | Path) -> None:
        self.directory = cast(Place, folder_of(directory))

    @property
    def checkpoint(self) -> Place:
        """Spark's checkpoint of the stream that archives."""
        return self.directory / "checkpoint"

    @property
    def manifest(self) -> Place:
        """The file that says what is compacted."""
        return self.directory / "archive.json"

    @property
    def checksums(self) -> Place:
        """What the broker told of the events."""
        return self.directory / "checksums.jsonl"

    def told(self) -> list[Told]:
        """What the broker told of the events; nothing if an older version archived them. Raises PipelineError
        where that was changed.
        """
        if self.checksums.exists():
            return read_told(self.checksums)
        if self._said().get("told"):
            raise PipelineError(f"{self.checksums}: expected what the broker has told, and it is gone")
        return []

    def note(self, told: Sequence[Told]) -> None:
        """Keep what the broker told of a batch."""
        note(self.checksums, told)
        said = self._said()
        if told and not said.get("told"):
            self._say({**said, "told": True})

    def lsns(self, number: int) -> range:
        """The numbers of the events of a batch, by what its files say of themselves."""
        import pyarrow.parquet

        least: list[int] = []
        most: list[int] = []
        for path in self.epoch(number).files(".parquet"):
            with path.reader() as file:
                metadata = pyarrow.parquet.read_metadata(file)
            names = metadata.schema.names
            for at in range(metadata.num_row_groups):
                found = metadata.row_group(at).column(names.index("lsn")).statistics
                if found is not None and found.has_min_max:
                    least.append(found.min)
                    most.append(found.max)
        return range(min(least), max(most) + 1) if least else range(0)

    def epoch(self, number: int) -> Place:
        """The folder of one batch."""
        return self.directory / "events" / f"epoch={number}"

    def segment(self, first: int, last: int) -> Place:
        """The folder of the compacted batches `first` to `last`."""
        return self.directory / "compacted" / f"{first}-{last}"

    def segments(self) -> list[tuple[int, int]]:
        """The compacted ranges of batches. Raises PipelineError for a manifest of another version."""
        return [(int(first), int(last)) for first, last in self._said()["compacted"]]

    def _said(self) -> dict[str, Any]:
        """The manifest."""
        if not self.manifest.exists():
            return {"version": VERSION, "compacted": []}
        try:
            said = json.loads(self.manifest.read_text())
        except ValueError as error:
            raise PipelineError(f"{self.manifest}: expected JSON, but it is damaged: {error}") from None
        if not isinstance(said, dict) or said.get("version") != VERSION:
            said = said if isinstance(said, dict) else {}
            raise PipelineError(
                f"{self.manifest}: expected version {VERSION}, found {said.get('version')!r}: "
                "it was written by another amqp-broker"
            )
        return said

    def _say(self, said: dict[str, Any]) -> None:
        """Replace the manifest, in one step."""
        self.manifest.replace_text(json.dumps(said))

    def epochs(self) -> list[int]:
        """The complete batches that are not compacted, in order."""
        compacted = max((last for _, last in self.segments()), default=-1)
        return [
            number
            for number in self._folders()
            if number > compacted and (self.epoch(number) / _SUCCESS).exists()
        ]

    def keep_segments(self, segments: list[tuple[int, int]]) -> None:
        """Replace the manifest, in one step; then remove what counts no more."""
        self._say({**self._said(), "compacted": segments})
        compacted = max(last for _, last in segments)
        for number in self._folders():
            if number <= compacted:
                self.epoch(number).remove()
        kept = {self.segment(*segment).name for segment in segments}
        for folder in (self.directory / "compacted").iterdir():
            if folder.name not in kept:
                folder.remove()

    def octets(self) -> int:
        """How large what counts is, on disk."""
        return sum(path.octets() for folder in self._counted() for path in folder.files(".parquet"))

    def seal(self, folder: LocalPath | HadoopPath) -> None:
        """Note what is in a folder that was just written, for `verify`."""
        files = {name: _seen(path) for name, path in sorted(_files(folder).items())}
        (folder / _FILES).replace_text(json.dumps(files, indent=0))

    def verify(self) -> None:
        """Raises PipelineError, which names the file, if one that counts is not what was written, is gone, or
        was added; or if a batch is gone that the stream has archived. A folder that an older version wrote
        says nothing of its files.
        """
        # Before its folders: a stream that goes on commits a batch when its folder is there.
        commits = self.checkpoint / "commits"
        entries = commits.iterdir() if commits.is_dir() else ()
        numbers = [int(path.name) for path in entries if path.name.isdigit()]
        archived = max(numbers, default=-1)
        self.check()
        for folder in self._counted():
            if (folder / _FILES).exists():
                _verify(folder)
        self._verify_told(archived)
        if archived > max([*self.epochs(), *(last for _, last in self.segments())]):
            raise PipelineError(
                f"{self.epoch(archived)}: expected a batch that was archived, and it is gone: "
                "the end of the archive was cut off"
            )

    def _verify_told(self, archived: int) -> None:
        """What the broker told goes as far as what the stream has archived."""
        told = self.told()
        batch = max((number for number in self.epochs() if number <= archived), default=None)
        if not told or batch is None:
            return
        end, until = self.lsns(batch).stop, told[-1].next
        if end > until:
            raise PipelineError(
                f"{self.checksums}: expected what the broker told of the events before {end}, and it ends "
                f"before {until}: lines were cut off"
            )

    def _counted(self) -> list[Place]:
        folders = [self.epoch(number) for number in self.epochs()]
        return folders + [self.segment(*segment) for segment in self.segments()]

    def check(self) -> None:
        """Raises PipelineError if there is nothing to read."""
        if not self.epochs() and not self.segments():
            raise PipelineError(
                f"{self.directory}: expected an archive of events, found none: "
                "`amqp-broker pipeline archive URL DIR` makes one"
            )

    def _folders(self) -> list[int]:
        parent = self.directory / "events"
        if not parent.is_dir():
            return []
        return sorted(int(found[1]) for path in parent.iterdir() if (found := _EPOCH.fullmatch(path.name)))


def _files(folder: LocalPath | HadoopPath) -> dict[str, Any]:
    """The files of a folder that are read, by their names in it."""
    return {name_within(folder, path): path for path in folder.files(".parquet")}


def _seen(path: LocalPath | HadoopPath) -> list[int | str]:
    return [path.octets(), path.sha256()]


def _verify(folder: LocalPath | HadoopPath) -> None:
    try:
        noted = dict(json.loads((folder / _FILES).read_text()))
    except ValueError:
        raise PipelineError(f"{folder / _FILES}: expected JSON, and it is damaged") from None
    there = _files(folder)
    for name in sorted(noted.keys() | there.keys()):
        if name not in there:
            raise PipelineError(f"{folder / name}: expected a file of the archive, and it is gone")
        if name not in noted:
            raise PipelineError(f"{folder / name}: expected no such file, it was not written by the archive")
        found = _seen(there[name])
        if found != noted[name]:
            before, now = noted[name][0], found[0]
            octets = "" if before == now else f": {before} octets were, {now} are there"
            raise PipelineError(f"{folder / name}: expected what was written, and it is damaged{octets}")
