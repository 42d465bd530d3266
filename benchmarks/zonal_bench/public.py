"""Public files as their authors publish them, read block by block.

Each `PublicFile` has the names, the format and the source of a file. A file with other
columns raises an error; one with another number of rows gives a warning, because parts
of these files are in circulation.
"""

import contextlib
import dataclasses
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

__all__ = ["BUZZ", "HOUSEHOLD", "SONG", "SUSY", "PublicFile"]


@dataclasses.dataclass(frozen=True)
class PublicFile:
    """A delimited text file of numbers.

    Parameters
    ----------
    names
        Possible names of the file. ``.gz`` and ``.zip`` with a single file are read
        without unpacking.
    rows
        Number of rows of the published file.
    columns
        Names of the columns in order; with ``header``, they are the first line.
    dates
        Columns of dates or times with their pyarrow types.
    unused
        Number of last columns that are not read.
    source
        Where to download it.
    """

    names: tuple[str, ...]
    rows: int
    columns: tuple[str, ...]
    source: str
    delimiter: str = ","
    header: bool = False
    dates: tuple[tuple[str, str], ...] = ()
    unused: int = 0

    def find(self, folder: Path) -> Path | None:
        """Path of the file in a folder, or None."""
        paths = [folder / name for name in self.names]
        return next((path for path in paths if path.is_file()), None)

    def read(self, path: Path) -> dict[str, np.ndarray]:
        """Columns of a file as float32, dates, and times in seconds; '?' is NaN."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self._used}
        for batch in self._batches(path):
            for name, values in zip(self._used, batch.columns, strict=True):
                if pa.types.is_time(values.type):
                    values = values.cast("int32")
                parts[name].append(values.to_numpy(zero_copy_only=False))
        if not parts[self._used[0]]:
            raise ValueError(f"{path.name} has no rows; download it again")
        columns = {name: np.concatenate(some) for name, some in parts.items()}
        count = len(columns[self._used[0]])
        if count != self.rows:
            warnings.warn(
                f"{path.name} has {count:,} rows, the published file {self.rows:,}; "
                "results are for part of it",
                UserWarning,
                stacklevel=2,
            )
        return columns

    @property
    def _used(self) -> tuple[str, ...]:
        return self.columns[: len(self.columns) - self.unused]

    def _batches(self, path: Path) -> Iterator[Any]:
        dates = dict(self.dates)
        types = {
            name: pa.type_for_alias(dates.get(name, "float32")) for name in self._used
        }
        with _open(path) as file:
            self._check_width(path)
            yield from pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(
                    column_names=self.columns, skip_rows=int(self.header)
                ),
                pyarrow.csv.ParseOptions(delimiter=self.delimiter),
                pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(self._used),
                    null_values=["", "?"],
                    timestamp_parsers=["%d/%m/%Y"],
                ),
            )

    def _check_width(self, path: Path) -> None:
        with _open(path) as file:
            first = file.read(65_536).split(b"\n", 1)[0]
        width = first.count(self.delimiter.encode()) + 1
        if width != len(self.columns):
            raise ValueError(
                f"{path.name} has {width} columns where the published file has "
                f"{len(self.columns)}; download it from {self.source}"
            )


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """The unpacked bytes of a file."""
    if path.suffix != ".zip":
        with pa.input_stream(str(path)) as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            raise ValueError(
                f"{path.name} has {len(members)} files where one is expected; unpack "
                "it and keep the text file in the same folder"
            )
        with archive.open(members[0]) as file:
            yield file


SUSY = PublicFile(
    names=("SUSY.csv.gz", "SUSY.csv"),
    rows=5_000_000,
    # The label and the eight kinematic columns; ten derived ones are not used.
    columns=(
        "signal",
        "lepton1_pt",
        "lepton1_eta",
        "lepton1_phi",
        "lepton2_pt",
        "lepton2_eta",
        "lepton2_phi",
        "missing_energy_magnitude",
        "missing_energy_phi",
        *(f"derived_{number}" for number in range(10)),
    ),
    unused=10,
    source="archive.ics.uci.edu/dataset/279/susy",
)
SONG = PublicFile(
    names=("YearPredictionMSD.txt", "YearPredictionMSD.txt.zip"),
    rows=515_345,
    columns=("year", *(f"t{number}" for number in range(90))),
    source="archive.ics.uci.edu/dataset/203/yearpredictionmsd",
)
BUZZ = PublicFile(
    names=("Twitter.data",),
    rows=583_250,
    columns=(*(f"x{number}" for number in range(77)), "discussions"),
    source="archive.ics.uci.edu/dataset/248/buzz+in+social+media",
)
HOUSEHOLD = PublicFile(
    names=("household_power_consumption.txt", "household_power_consumption.zip"),
    rows=2_075_259,
    columns=(
        "Date",
        "Time",
        "Global_active_power",
        "Global_reactive_power",
        "Voltage",
        "Global_intensity",
        "Sub_metering_1",
        "Sub_metering_2",
        "Sub_metering_3",
    ),
    delimiter=";",
    header=True,
    dates=(("Date", "timestamp[s]"), ("Time", "time32[s]")),
    source="archive.ics.uci.edu/dataset/235",
)
