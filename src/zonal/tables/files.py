"""Files as streams: what paths stand for, how CSV is written, and how both are read.

Nothing is read further than it is taken, so a file of any length takes little memory.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zonal.tables import batches
from zonal.tables.batches import Batch, BatchReader, StreamError, pyarrow_part, table_of

__all__ = ["DatasetReader", "dataset_of", "found_files"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".feather": "ipc",
}
# What stands between two values of a CSV file, likeliest first.
_DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
# Numbers as some languages write them, and as others do.
_WITH_COMMA = re.compile(r'"?-?\d+,\d+"?')
_WITH_POINT = re.compile(r'"?-?\d+\.\d+"?')
# Bytes of a CSV file that the types of its columns are told from.
_TYPED_BYTES = 16 << 20
# Bytes of a CSV file that are read at a time.
_BLOCK_BYTES = 1 << 20


def dataset_of(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
) -> Any:
    """Files as a pyarrow dataset; see `Stream.files`."""
    dataset = pyarrow_part("dataset").dataset
    found = found_files(paths)
    endings = {_FORMATS.get(_ending(one)) for one in found}
    if format is None and (len(endings) != 1 or None in endings):
        raise ValueError(
            f"cannot tell the format of {found[0]}"
            f"{' and others' if len(found) > 1 else ''} by their names; let them "
            "end in .csv, .tsv, .parquet or .feather, or pass format='parquet', "
            "'csv' or 'ipc'"
        )
    kind: Any = format or endings.pop()
    if kind == "csv":
        kind = _csv_format(found[0], delimiter)
    options: dict[str, Any] = {}
    if isinstance(paths, (str, os.PathLike)) and Path(paths).is_dir():
        options = {"partitioning": "hive", "partition_base_dir": str(paths)}
    build = functools.partial(dataset, found, format=kind, **options)
    return _agreed(build)


def found_files(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files that paths stand for, in order."""
    every = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[str] = []
    for path in map(Path, every):
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.is_file())
            shown = [
                str(one)
                for one in inside
                if not any(
                    part.startswith((".", "_")) for part in one.relative_to(path).parts
                )
            ]
            # What lies beside tables, such as a model, is no table.
            found += [one for one in shown if _ending(one) in _FORMATS] or shown
        elif "*" in path.name:
            found += sorted(map(str, path.parent.glob(path.name)))
        elif path.is_file():
            found.append(str(path))
        else:
            raise FileNotFoundError(f"there is no file {path}")
    if not found:
        raise FileNotFoundError(f"there is no file in {', '.join(map(str, every))}")
    return found


def _ending(path: str) -> str:
    """What a file's name ends with, compressed or not."""
    name = Path(path.lower().removesuffix(".gz").removesuffix(".bz2"))
    return name.suffix


def _csv_format(path: str, delimiter: str | None) -> Any:
    """How CSV files like one are read."""
    csv = pyarrow_part("csv")
    first, *others = _first_lines(path)
    if delimiter is None:
        # The likeliest of those that occur most often, outside of quotes.
        delimiter = max(_DELIMITERS, key=_QUOTED.sub("", first).count)
    fields = [field for line in others for field in line.split(delimiter)]
    comma = delimiter != "," and any(map(_WITH_COMMA.fullmatch, fields))
    comma &= not any(map(_WITH_POINT.fullmatch, fields))
    return pyarrow_part("dataset").CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # An empty text is no text, as pandas and polars have it.
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, decimal_point="," if comma else "."
        ),
        read_options=csv.ReadOptions(block_size=_TYPED_BYTES),
    )


def _first_lines(path: str) -> list[str]:
    """Some lines of a CSV file, without their ends."""
    from pyarrow import ArrowException, input_stream

    try:
        with input_stream(path, compression="detect") as file:
            start = file.read(1 << 16)
    except (OSError, ArrowException) as error:
        raise StreamError(f"{path} cannot be read: {error}") from error
    if not start.strip():
        raise StreamError(f"{path} is empty; give a file with a line of column names")
    return start.decode("utf-8", "replace").splitlines()[:100]


def _agreed(build: Callable[..., Any]) -> Any:
    """A dataset with columns and types that suit all of its files."""
    import pyarrow

    try:
        dataset = build()
    except (OSError, pyarrow.ArrowException) as error:
        raise StreamError(f"the files cannot be read: {error}") from error
    schemas = [dataset.schema]
    for fragment in dataset.get_fragments():
        try:
            schemas.append(fragment.physical_schema)
        except (OSError, pyarrow.ArrowException) as error:
            raise StreamError(f"{fragment.path} cannot be read: {error}") from error
    if all(one.equals(schemas[0]) for one in schemas):
        return dataset
    try:
        together = pyarrow.unify_schemas(schemas, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise StreamError(f"the files do not go together: {error}") from error
    return build(schema=together)


class DatasetReader(BatchReader):
    """Files through pyarrow.dataset."""

    def __init__(self, dataset: Any, wanted: Any):
        self._dataset, self._filter = dataset, wanted
        self._rows: int | None = None

    @property
    def names(self) -> list[str]:
        schema = self._dataset.schema
        # What pandas wrote beside the columns are the numbers of its rows.
        beside = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = [one for one in beside.get("index_columns", []) if isinstance(one, str)]
        return [name for name in schema.names if name not in index]

    @property
    def n_rows(self) -> int:
        if self._rows is None:
            self._rows = int(self._dataset.count_rows(filter=self._filter))
        return self._rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        from pyarrow.lib import ArrowException

        schema = self._dataset.schema
        for fragment in self._dataset.get_fragments(filter=self._filter):
            path, row = getattr(fragment, "path", "") or "the table", 0
            # pyarrow does not tell which rows of the file these are.
            counted = "" if self._filter is None else ", of the rows kept by the filter"
            try:
                for batch in self._scanned(fragment, schema, columns):
                    if len(batch):
                        yield Batch(table_of(batch), path + counted, row)
                        row += len(batch)
            except (OSError, ArrowException) as error:
                raise StreamError(f"{path} cannot be read: {error}") from error

    def _scanned(
        self, fragment: Any, schema: Any, columns: Sequence[str] | None
    ) -> Iterator[Any]:
        """Record batches of a file.

        A scanner reads as fast as it can and keeps what is not taken, so Parquet files
        are scanned a row group at a time, and CSV files read by a reader that waits.
        """
        wanted = list(self.names if columns is None else columns)
        how: dict[str, Any] = {}
        parts, kind = [fragment], getattr(fragment, "format", None)
        name = None if kind is None else kind.default_extname
        if name == "csv" and not _partitions(fragment):
            yield from _read_csv(fragment, schema, wanted, self._filter)
            return
        if name == "parquet":
            parts = fragment.split_by_row_group(self._filter, schema=schema)
            how["fragment_scan_options"] = pyarrow_part(
                "dataset"
            ).ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
        for part in parts:
            yield from part.to_batches(
                schema=schema,
                columns=wanted,
                filter=self._filter,
                batch_size=batches.BATCH_ROWS,
                batch_readahead=batches.AHEAD,
                **how,
            )


def _partitions(fragment: Any) -> dict[str, Any]:
    """Columns that a file's folder tells."""
    return pyarrow_part("dataset").get_partition_keys(fragment.partition_expression)


def _read_csv(
    fragment: Any, schema: Any, wanted: list[str], kept: Any
) -> Iterator[Any]:
    """Record batches of a CSV file, read no further than they are taken."""
    csv, kind = pyarrow_part("csv"), fragment.format
    given = kind.default_fragment_scan_options
    convert, read = given.convert_options, given.read_options
    # Types are known by now; pyarrow holds dozens of blocks.
    read.block_size = min(read.block_size, _BLOCK_BYTES)
    convert.column_types = {field.name: field.type for field in schema}
    # What a filter looks at is not known before it looks.
    convert.include_columns = wanted if kept is None else list(schema.names)
    convert.include_missing_columns = True
    with (
        fragment.filesystem.open_input_stream(fragment.path) as file,
        csv.open_csv(
            file,
            read_options=read,
            parse_options=kind.parse_options,
            convert_options=convert,
        ) as reader,
    ):
        for batch in reader:
            yield batch if kept is None else batch.filter(kept).select(wanted)
