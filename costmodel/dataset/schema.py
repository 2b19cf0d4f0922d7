"""The tables of a dataset: three Parquet files in one folder, every column with a description and its unit.

`tasks.parquet` has a row for each task, `sketches.parquet` one for each schedule whose numbers are decision variables,
`programs.parquet` one for each measured program. The files contain the descriptions, too, as metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.dataset.errors import DatasetError
from search_space.extras import require
from search_space.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "autotune.dataset/1"
"""Name and version of the format; any change of a column's meaning requires a new version."""
MARK = b"schema"
"""Key of a file's metadata whose value is `SCHEMA`."""

COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "tasks": {
        "key": ("string", "unique: workload, target, machine, threads and cache state"),
        "name": ("string", "readable"),
        "workload": ("string", "JSON form of the workload, see docs/records.md"),
        "target": ("string", "name of the target"),
        "machine": ("string", "processor and cores that it was measured on; empty for a simulated target"),
        "threads": ("int32", "threads a kernel ran on"),
        "cache": ("string", "state of the caches in timing: warm, or network with weights cold"),
        "hardware": ("string", "JSON of search_space.hardware.Hardware, which features are made of"),
        "networks": ("map<string, int32>", "network -> how often the task occurs in it; empty for an operator"),
    },
    "sketches": {
        "task": ("int32", "row of tasks.parquet, from 0"),
        "name": ("string", "of the sketch in its search space"),
        "algorithm": ("string", "definition of the workload that is scheduled"),
        "steps": ("string", "JSON of the symbolic trace, see costmodel.dataset.symbolic"),
        "columns": ("list<string>", "names of the decision variables"),
    },
    "programs": {
        "sketch": ("int32", "row of sketches.parquet, from 0"),
        "values": ("list<int32>", "of the decision variables, in the order of the sketch's columns"),
        "latencies": ("list<float>", "seconds of each sample, float32; empty on failure"),
        "error": ("dictionary<string>", "ok, or the class of the failure, see docs/records.md"),
        "origin": ("dictionary<string>", "random: drawn at random; search: proposed by a guided search"),
        "order": ("int32", "place among the trials of its search, from 0"),
        "seed": ("int64", "of the search and of the inputs"),
        "digest": ("int64", "first 8 bytes of the SHA-256 that is the key of the concrete trace"),
    },
}
"""Table -> column -> its type and description."""


def make_schema(table: str) -> pa.Schema:
    """Makes the Arrow schema of a table, with descriptions and version."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "map<string, int32>": pa.map_(pa.string(), pa.int32()),
        "list<string>": pa.list_(pa.string()),
        "list<int32>": pa.list_(pa.int32()),
        "list<float>": pa.list_(pa.float32()),
        "dictionary<string>": pa.dictionary(pa.int32(), pa.string()),
    }
    columns = [
        pa.field(name, kinds[kind], nullable=False, metadata={"description": text})
        for name, (kind, text) in COLUMNS[table].items()
    ]
    return pa.schema(columns, metadata={MARK: SCHEMA.encode()})


def write_tables(folder: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Writes all tables of a dataset or none, as rows of one are indices into another.

    Args:
        folder: folder of the dataset.
        tables: columns by name, for each table by name.
    """
    require("writing a dataset", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:  # no file is replaced before all are written
        for name, columns in tables.items():
            partial = stack.enter_context(replacing(folder / f"{name}.parquet"))
            table = pa.table(dict(columns), make_schema(name))
            pq.write_table(table, partial, compression="zstd", compression_level=19, write_statistics=False)


def read_table(folder: Path, table: str) -> pa.Table:
    """Reads one table of a dataset.

    Raises:
        DatasetError: the file does not exist, is not Parquet, or has another schema.
    """
    require("reading a dataset", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{table}.parquet"
    try:
        data = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise DatasetError(
            f"a dataset must be a folder with {', '.join(f'{name}.parquet' for name in COLUMNS)}, "
            f"but {folder} has no {path.name}"
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path}: a table must be a readable Parquet file, but {error}") from None
    marked = (data.schema.metadata or {}).get(MARK, b"").decode(errors="replace")
    if marked != SCHEMA:
        raise DatasetError(f"{path}: `schema` must be {SCHEMA!r}, but got schema={marked!r}")
    wanted = make_schema(table)
    if data.schema.names != wanted.names or data.schema.types != wanted.types:
        got = ", ".join(f"{name}: {kind}" for name, kind in zip(data.schema.names, data.schema.types, strict=True))
        raise DatasetError(f"{path}: a table must have the columns {', '.join(wanted.names)}, but got {got}")
    return data
