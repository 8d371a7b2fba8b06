"""What an example tree shows is one world: pictures, LiDAR, boxes, maps and measurements agree."""

from itertools import pairwise

import cv2
import numpy as np
import pytest

from lead_trainer.example_worlds.lead.camera import project

WINDOW = ((-32.0, 64.0), (-40.0, 40.0))


def _turn(yaw: float) -> np.ndarray:
    return np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])


def _semantic_of(box: dict) -> int:
    return 9 if box.get("base_type") == "bicycle" else int(box["transfuser_semantics_id"])


def _solid(boxes: list[dict]) -> list[dict]:
    return [box for box in boxes if box["class"] in ("car", "walker", "static", "static_prop_car")]


def _seen_at(position: np.ndarray) -> tuple[int, int, float] | None:
    """Row, column in the wide picture, and depth of the camera that sees a point best."""
    best = None
    for camera in range(3):
        (pixel,), (depth,) = project(position[None], camera)
        if depth > 1.0 and 4 <= pixel[0] < 380 and 4 <= pixel[1] < 380:
            best = (int(pixel[1]), int(pixel[0]) + 384 * camera, float(depth))
    return best


def test_visible_box_centres_hit_their_class_and_depth(frames: list) -> None:
    hits, count, close = 0, 0, []
    for frame in frames:
        semantic, depth = frame.image("semantics"), frame.image("depth")
        for box in _solid(frame.boxes):
            seen = _seen_at(np.array(box["position"]))
            area = 332.0**2 * 4 * min(box["extent"][:2]) * box["extent"][2] / max(box["distance"], 1.0) ** 2
            if seen is None or box["visible_pixels"] < max(40.0, 0.6 * area):
                continue
            row, column, metres = seen
            count += 1
            hits += int(semantic[row, column]) == _semantic_of(box)
            found = float(depth[row // 4, column // 4]) * 50 / 255
            if box["class"] != "walker" and metres < 40:
                close.append(abs(found - metres) < 0.5 + float(np.hypot(*box["extent"][:2])))
    assert count > 60
    assert hits / count > 0.95
    assert len(close) > 30
    assert np.mean(close) > 0.85  # the rest stands half behind another box


def test_lidar_points_lie_on_the_boxes_that_count_them(frames: list) -> None:
    checked = 0
    for frame in frames[::2]:
        cloud = frame.lidar()
        points = cloud.xyz[cloud["time"] == 0]
        for box in _solid(frame.boxes):
            x, y, _ = box["position"]
            if box["num_points"] < 60 or not (-31 < x < 63 and -39 < y < 39):
                continue
            local = points - np.array(box["position"])
            local[:, :2] = local[:, :2] @ _turn(box["yaw"])
            extent = np.array(box["extent"])
            on = np.all(np.abs(local) < extent + 0.12, axis=1)
            deep = np.all(np.abs(local) < extent - 0.12, axis=1)
            assert np.count_nonzero(on) >= 1, box
            assert np.count_nonzero(deep) == 0, box
            checked += 1
    assert checked > 20


def test_radar_returns_move_as_the_scene_does(frames: list) -> None:
    for frame in frames[::5]:
        with np.load(frame.path("radar")) as arrays:
            returns = np.concatenate([arrays[name] for name in sorted(arrays)]).astype(np.float64)
        ahead = returns[(returns[:, 0] > 8) & (np.abs(returns[:, 1]) > 7.5)]
        bearing = ahead[:, :2] - np.array([2.6, 0.0])
        standing = -frame.meta["speed"] * bearing[:, 0] / np.linalg.norm(bearing, axis=1)
        assert np.mean(np.abs(ahead[:, 3] - standing) < 0.3) > 0.6


def test_the_perturbated_view_shows_the_same_world_from_the_moved_rig(frames: list) -> None:
    hits, count = 0, 0
    for frame in frames:
        shift, turn = frame.meta["perturbation_translation"], np.deg2rad(frame.meta["perturbation_rotation"])
        assert 0.1 <= abs(shift) <= 1.0
        assert 5.0 <= abs(frame.meta["perturbation_rotation"]) <= 12.5
        semantic = frame.image("semantics_perturbated")
        for box in _solid(frame.boxes):
            if box["visible_pixels"] < 900 or box["distance"] > 25:
                continue
            position = np.array(box["position"])
            position[:2] = (position[:2] - np.array([0.0, shift])) @ _turn(turn)
            seen = _seen_at(position)
            if seen is not None:
                count += 1
                hits += int(semantic[seen[0], seen[1]]) == _semantic_of(box)
    assert count > 15
    assert hits / count > 0.85


def test_the_perturbated_map_is_the_map_moved(frames: list) -> None:
    for frame in frames[::6]:
        shift, turn = frame.meta["perturbation_translation"], np.deg2rad(frame.meta["perturbation_rotation"])
        rotation = _turn(turn)
        centre = rotation @ np.full(2, -127.5) + np.array([0.0, 2 * shift]) + 127.5
        to_source = np.concatenate([rotation, centre[:, None]], axis=1)
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        moved = cv2.warpAffine(frame.image("hdmap"), to_source, (256, 256), flags=flags)
        inner = (slice(70, 186), slice(70, 186))
        same = np.mean(moved[inner] == frame.image("hdmap_perturbated")[inner])
        assert same > 0.86


def test_the_ground_in_the_picture_is_the_map(frames: list) -> None:
    """Road pixels of the camera, carried to the ground plane, fall on road of the map."""
    for frame in frames[::6]:
        semantic, hdmap = frame.image("semantics")[:, 384:768], frame.image("hdmap")
        rows, columns = np.nonzero(semantic == 2)
        near = rows > 230
        depth = 332.55 * 2.25 / (rows[near] + 0.5 - 192)
        x, y = depth + 0.35, depth * (columns[near] + 0.5 - 192) / 332.55
        value = hdmap[((y + 64) * 2).astype(int), ((x + 64) * 2).astype(int)]
        assert np.mean(np.isin(value, (1, 3, 4, 5))) > 0.97


def test_futures_are_where_the_ego_really_goes(frames: list) -> None:
    for now, later in pairwise(frames):
        if now.route != later.route:
            continue
        position = now.meta["ego_matrix"].astype(np.float64) @ np.append(now.meta["future_positions"][5], 1.0)
        assert position[:3] == pytest.approx(later.meta["pos_global"], abs=2e-3)
        assert now.meta["privileged_yaw"] + now.meta["future_yaws"][5] == pytest.approx(
            later.meta["privileged_yaw"], abs=1e-3
        )
        assert now.meta["future_speeds"][5] == pytest.approx(later.meta["speed"], abs=1e-3)
        step = np.linalg.norm(np.diff(now.meta["future_positions"][:6], axis=0), axis=1).sum()
        assert step == pytest.approx(np.mean(now.meta["future_speeds"][:6]) * 0.25, abs=0.06)
        back = np.asarray(later.meta["privileged_past_positions"][5], dtype=np.float64)
        assert _turn(later.meta["privileged_yaw"]) @ back + later.meta["pos_global"][:2] == pytest.approx(
            now.meta["pos_global"][:2], abs=2e-3
        )


def test_moving_boxes_go_where_their_futures_say(frames: list) -> None:
    for now, later in pairwise(frames):
        if now.route != later.route:
            continue
        after = {box["id"]: box for box in later.boxes}
        for box in now.boxes:
            if len(box.get("future_positions", ())) <= 5 or box["id"] not in after:
                continue
            there = np.append(box["future_positions"][5].astype(np.float64), [0.0, 1.0])
            world = now.meta["ego_matrix"].astype(np.float64) @ there
            assert world[:2] == pytest.approx([row[3] for row in after[box["id"]]["matrix"][:2]], abs=0.08)


def test_the_route_lies_ahead_in_metre_steps(frames: list) -> None:
    for frame in frames:
        route = frame.meta["route"]
        assert route.shape == (50, 2)
        assert np.linalg.norm(route[0]) == pytest.approx(2.5, abs=0.1)
        assert np.linalg.norm(np.diff(route, axis=0), axis=1) == pytest.approx(1.0, abs=0.08)


def test_braking_slows_the_ego_and_has_a_reason(frames: list) -> None:
    braking = [frame.meta for frame in frames if frame.meta["brake"]]
    assert 3 < len(braking) < len(frames)
    for meta in braking:
        assert meta["throttle"] == 0.0
        assert meta["future_speeds"][min(2, len(meta["future_speeds"]) - 1)] <= meta["speed"] + 1e-3
    for meta in (frame.meta for frame in frames if frame.meta["light_hazard"]):
        assert meta["traffic_light_state"] in ("Red", "Yellow")


def test_the_light_in_the_boxes_is_the_light_in_the_meta(frames: list) -> None:
    lights = [(frame.meta, box) for frame in frames for box in frame.boxes if box["class"] == "traffic_light"]
    assert {box["state"] for _, box in lights} >= {"Red", "Green"}
    assert all(meta["traffic_light_state"] == box["state"] and box["affects_ego"] for meta, box in lights)
