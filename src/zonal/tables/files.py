"""Readers of Parquet, CSV and Feather files, and of folders of them.

Files are read only a little ahead of use, so a file of any length takes little memory.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zonal.tables import batches
from zonal.tables.batches import (
    Batch,
    BatchReader,
    StreamError,
    import_pyarrow,
    table_of,
)

__all__ = ["DatasetReader", "list_files", "open_dataset"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".feather": "ipc",
}
# Delimiters of CSV files that are detected, likeliest first.
_DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
# Numbers with a decimal comma, and with a decimal point.
_WITH_COMMA = re.compile(r'"?-?\d+,\d+"?')
_WITH_POINT = re.compile(r'"?-?\d+\.\d+"?')
# Bytes of a CSV file from which the types of its columns are inferred.
_TYPE_BYTES = 16 << 20
# Bytes of a CSV file per read.
_BLOCK_BYTES = 1 << 20


def open_dataset(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
) -> Any:
    """Files as a pyarrow dataset; see `Stream.files`."""
    dataset = import_pyarrow("dataset").dataset
    files = list_files(paths)
    formats = {_FORMATS.get(_suffix(file)) for file in files}
    if format is None and (len(formats) != 1 or None in formats):
        raise ValueError(
            f"cannot tell the format of {files[0]}"
            f"{' and others' if len(files) > 1 else ''} from the file name; use the "
            "extension .csv, .tsv, .parquet or .feather for all files, or pass "
            "format='parquet', 'csv' or 'ipc'"
        )
    file_format: Any = format or formats.pop()
    if file_format == "csv":
        file_format = _csv_format(files[0], delimiter)
    options: dict[str, Any] = {}
    if isinstance(paths, (str, os.PathLike)) and Path(paths).is_dir():
        options = {"partitioning": "hive", "partition_base_dir": str(paths)}
    build = functools.partial(dataset, files, format=file_format, **options)
    return _with_common_schema(build)


def list_files(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """All files that paths, folders and patterns with * stand for, in order."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[str] = []
    for path in map(Path, given):
        if path.is_dir():
            files += _tables_inside(path)
        elif "*" in path.name:
            files += sorted(map(str, path.parent.glob(path.name)))
        elif path.is_file():
            files.append(str(path))
        else:
            raise FileNotFoundError(f"there is no file {path}; check the path")
    if not files:
        raise FileNotFoundError(
            f"there is no file in {', '.join(map(str, given))}; check the path"
        )
    return files


def _tables_inside(folder: Path) -> list[str]:
    """Files of tables in a folder, without hidden ones."""
    visible = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(
            part.startswith((".", "_")) for part in path.relative_to(folder).parts
        )
    ]
    # Other files, such as saved models, may lie beside tables.
    return [path for path in visible if _suffix(path) in _FORMATS] or visible


def _suffix(path: str) -> str:
    """The extension of a file name, without that of its compression."""
    name = Path(path.lower().removesuffix(".gz").removesuffix(".bz2"))
    return name.suffix


def _csv_format(path: str, delimiter: str | None) -> Any:
    """The delimiter, decimal point and so on of CSV files, detected from one file."""
    csv = import_pyarrow("csv")
    header, *rows = _first_lines(path)
    if delimiter is None:
        # The most frequent in the header, outside of quotes.
        delimiter = max(_DELIMITERS, key=_QUOTED.sub("", header).count)
    fields = [field for line in rows for field in line.split(delimiter)]
    comma = delimiter != "," and any(map(_WITH_COMMA.fullmatch, fields))
    comma &= not any(map(_WITH_POINT.fullmatch, fields))
    return import_pyarrow("dataset").CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # Empty strings are missing values, as in pandas and polars.
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, decimal_point="," if comma else "."
        ),
        read_options=csv.ReadOptions(block_size=_TYPE_BYTES),
    )


def _first_lines(path: str) -> list[str]:
    """The first lines of a CSV file, at most 100."""
    from pyarrow import ArrowException, input_stream

    try:
        with input_stream(path, compression="detect") as file:
            start = file.read(1 << 16)
    except (OSError, ArrowException) as error:
        raise StreamError(f"{path} cannot be read: {error}") from error
    if not start.strip():
        raise StreamError(f"{path} is empty; pass a file with a line of column names")
    return start.decode("utf-8", "replace").splitlines()[:100]


def _with_common_schema(build: Callable[..., Any]) -> Any:
    """A dataset whose schema has the columns of all files, in types that fit all."""
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
    if all(schema.equals(schemas[0]) for schema in schemas):
        return dataset
    try:
        schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise StreamError(
            "the files have a column of the same name but different types; convert it "
            f"to one type: {error}"
        ) from error
    return build(schema=schema)


class DatasetReader(BatchReader):
    """A pyarrow dataset as batches, and optionally only rows that pass a filter."""

    def __init__(self, dataset: Any, row_filter: Any):
        self._dataset, self._filter = dataset, row_filter
        self._n_rows: int | None = None

    @property
    def names(self) -> list[str]:
        schema = self._dataset.schema
        # Without the index of a pandas frame, which is stored as a column.
        pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = [
            name for name in pandas.get("index_columns", []) if isinstance(name, str)
        ]
        return [name for name in schema.names if name not in index]

    @property
    def n_rows(self) -> int:
        if self._n_rows is None:
            self._n_rows = int(self._dataset.count_rows(filter=self._filter))
        return self._n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        from pyarrow.lib import ArrowException

        schema = self._dataset.schema
        for fragment in self._dataset.get_fragments(filter=self._filter):
            path, row = getattr(fragment, "path", "") or "the table", 0
            # pyarrow does not say which rows of the file passed the filter.
            counted = "" if self._filter is None else ", of the rows kept by the filter"
            try:
                for batch in self._scan(fragment, schema, columns):
                    if len(batch):
                        yield Batch(table_of(batch), path + counted, row)
                        row += len(batch)
            except (OSError, ArrowException) as error:
                raise StreamError(f"{path} cannot be read: {error}") from error

    def _scan(
        self, fragment: Any, schema: Any, columns: Sequence[str] | None
    ) -> Iterator[Any]:
        """Record batches of a file.

        A scanner of pyarrow reads as fast as it can and buffers the rest, so Parquet
        files are scanned one row group at a time, and CSV files are read by a reader
        that waits.
        """
        names = list(self.names if columns is None else columns)
        options: dict[str, Any] = {}
        parts, file_format = [fragment], getattr(fragment, "format", None)
        format_name = None if file_format is None else file_format.default_extname
        if format_name == "csv" and not _partition_keys(fragment):
            yield from _read_csv(fragment, schema, names, self._filter)
            return
        if format_name == "parquet":
            parts = fragment.split_by_row_group(self._filter, schema=schema)
            options["fragment_scan_options"] = import_pyarrow(
                "dataset"
            ).ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
        for part in parts:
            yield from part.to_batches(
                schema=schema,
                columns=names,
                filter=self._filter,
                batch_size=batches.BATCH_ROWS,
                batch_readahead=batches.AHEAD,
                **options,
            )


def _partition_keys(fragment: Any) -> dict[str, Any]:
    """Columns whose values are in the folder's name, such as year=2024."""
    return import_pyarrow("dataset").get_partition_keys(fragment.partition_expression)


def _read_csv(
    fragment: Any, schema: Any, names: list[str], row_filter: Any
) -> Iterator[Any]:
    """Record batches of a CSV file, read as they are used."""
    csv, file_format = import_pyarrow("csv"), fragment.format
    options = file_format.default_fragment_scan_options
    convert, read = options.convert_options, options.read_options
    # Types are known by now, and pyarrow buffers dozens of blocks: small ones do.
    read.block_size = min(read.block_size, _BLOCK_BYTES)
    convert.column_types = {field.name: field.type for field in schema}
    # A filter may refer to any column.
    convert.include_columns = names if row_filter is None else list(schema.names)
    convert.include_missing_columns = True
    with (
        fragment.filesystem.open_input_stream(fragment.path) as file,
        csv.open_csv(
            file,
            read_options=read,
            parse_options=file_format.parse_options,
            convert_options=convert,
        ) as reader,
    ):
        for batch in reader:
            if row_filter is not None:
                batch = batch.filter(row_filter).select(names)
            yield batch
