"""Boxes of a log's sweeps, lights and tags: what is read from the database sweep by sweep."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.geometry import Doubles
from lead_trainer.recipes.nuplan.ingest.bounded_database import Row, open_database
from lead_trainer.recipes.nuplan.ingest.cell_values import integer_of, text_of, token_of
from lead_trainer.recipes.nuplan.ingest.log_tables import Int64, Log
from lead_trainer.recipes.nuplan.ingest.physical_limits import measured

_BOX = ("x", "y", "z", "width", "length", "height", "yaw", "vx", "vy")
MAX_BOXES = 200_000  # of the sweeps that one call reads
_TOKENS_A_QUERY = 500


@dataclass(frozen=True)
class Boxes:
    """Boxes of some sweeps, a row each."""

    tracks: tuple[str, ...]  # tokens
    sweep: Int64  # (n,) of the log
    x: Doubles  # metres in the city's UTM zone
    y: Doubles
    z: Doubles
    width: Doubles
    length: Doubles
    height: Doubles
    yaw: Doubles  # radians
    vx: Doubles  # m/s, along UTM's axes
    vy: Doubles

    def of_sweep(self, sweep: int) -> Int64:
        """Returns the rows of one sweep, in the order of the table."""
        return np.flatnonzero(self.sweep == sweep)


def read_boxes(log: Log, sweeps: Sequence[int]) -> Boxes:
    """Returns the boxes of sweeps, in the table's order for each; raises BadData naming the row that is wrong."""
    rows: list[Row] = []
    owners: list[int] = []
    sweep_of = {bytes.fromhex(log.tokens[sweep]): int(sweep) for sweep in sweeps}
    columns = ("token", "track_token", *_BOX, "lidar_pc_token")
    with open_database(log.file, log.path) as database:
        tokens = list(sweep_of)
        for begin in range(0, len(tokens), _TOKENS_A_QUERY):
            asked = tokens[begin : begin + _TOKENS_A_QUERY]
            listed = ", ".join("?" * len(asked))
            rows += database.rows("lidar_box", columns, f"WHERE lidar_pc_token IN ({listed}) ORDER BY rowid", asked)
            if len(rows) > MAX_BOXES:
                raise BadData(
                    f"{log.path}: table lidar_box has over {MAX_BOXES} boxes around sweep {log.tokens[sweeps[0]]}"
                )
        owners = [sweep_of[row[-1]] for row in rows]
    where = f"{log.path}: table lidar_box"

    def place(row: int) -> str:
        return f"{where}, token {token_of(rows[row][0], f'{where}, token')}"

    values = measured(rows, 2, place, _BOX)
    tracks = []
    met: set[tuple[int, str]] = set()
    for at, row in enumerate(rows):
        track = token_of(row[1], f"{where}, track_token")
        if track not in log.tracks:
            raise BadData(f"{place(at)}: track_token {track} is no row of table track; fetch the file again")
        if (owners[at], track) in met:
            raise BadData(
                f"{place(at)}: track_token {track} has a second box in sweep {log.tokens[owners[at]]}, expected one a "
                "sweep; fetch the file again"
            )
        met.add((owners[at], track))
        tracks.append(track)
    return Boxes(tuple(tracks), np.array(owners, np.int64), *values.T)


def read_lights(log: Log, sweep: int) -> list[tuple[int, str]]:
    """Returns lane connector and status of each light at a sweep."""
    with open_database(log.file, log.path) as database:
        token = bytes.fromhex(log.tokens[sweep])
        where = "WHERE lidar_pc_token = ? ORDER BY rowid"
        rows = database.rows("traffic_light_status", ("lane_connector_id", "status"), where, (token,))
    place = f"{log.path}: table traffic_light_status"
    return [(integer_of(number, place), text_of(status, place).upper()) for number, status in rows]


def read_tags(log: Log) -> dict[str, list[str]]:
    """Returns the scenario types of each tagged sweep."""
    found: dict[str, list[str]] = {}
    with open_database(log.file, log.path) as database:
        rows = database.rows("scenario_tag", ("lidar_pc_token", "type"), "ORDER BY rowid")
    place = f"{log.path}: table scenario_tag"
    for token, kind in rows:
        found.setdefault(token_of(token, place), []).append(text_of(kind, place))
    return found
