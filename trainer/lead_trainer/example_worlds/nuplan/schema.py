"""The tables of a made-up nuPlan log; names and types: nuplan-devkit's `nuplan_schema.md`."""

SCHEMA = """
CREATE TABLE log (token BLOB(8) NOT NULL PRIMARY KEY, vehicle_name VARCHAR(64), date VARCHAR(64), timestamp INTEGER,
    logfile VARCHAR(64), location VARCHAR(64), map_version VARCHAR(64));
CREATE TABLE category (token BLOB(8) NOT NULL PRIMARY KEY, name VARCHAR(64), description TEXT);
CREATE TABLE ego_pose (token BLOB(8) NOT NULL PRIMARY KEY, timestamp INTEGER, x FLOAT, y FLOAT, z FLOAT, qw FLOAT,
    qx FLOAT, qy FLOAT, qz FLOAT, vx FLOAT, vy FLOAT, vz FLOAT, acceleration_x FLOAT, acceleration_y FLOAT,
    acceleration_z FLOAT, angular_rate_x FLOAT, angular_rate_y FLOAT, angular_rate_z FLOAT, epsg INTEGER,
    log_token BLOB(8) NOT NULL);
CREATE TABLE camera (token BLOB(8) NOT NULL PRIMARY KEY, log_token BLOB(8) NOT NULL, channel VARCHAR(64),
    model VARCHAR(64), translation BLOB, rotation BLOB, intrinsic BLOB, distortion BLOB, width INTEGER, height INTEGER);
CREATE TABLE lidar (token BLOB(8) NOT NULL PRIMARY KEY, log_token BLOB(8) NOT NULL, channel VARCHAR(64),
    model VARCHAR(64), translation BLOB, rotation BLOB);
CREATE TABLE scene (token BLOB(8) NOT NULL PRIMARY KEY, log_token BLOB(8) NOT NULL, name TEXT,
    goal_ego_pose_token BLOB(8), roadblock_ids TEXT);
CREATE TABLE lidar_pc (token BLOB(8) NOT NULL PRIMARY KEY, next_token BLOB(8), prev_token BLOB(8),
    ego_pose_token BLOB(8) NOT NULL, lidar_token BLOB(8) NOT NULL, scene_token BLOB(8), filename VARCHAR(128),
    timestamp INTEGER);
CREATE TABLE image (token BLOB(8) NOT NULL PRIMARY KEY, next_token BLOB(8), prev_token BLOB(8),
    ego_pose_token BLOB(8) NOT NULL, camera_token BLOB(8) NOT NULL, filename_jpg VARCHAR(128), timestamp INTEGER);
CREATE TABLE track (token BLOB(8) NOT NULL PRIMARY KEY, category_token BLOB(8) NOT NULL, width FLOAT, length FLOAT,
    height FLOAT);
CREATE TABLE lidar_box (token BLOB(8) NOT NULL PRIMARY KEY, lidar_pc_token BLOB(8) NOT NULL, track_token BLOB(8),
    next_token BLOB(8), prev_token BLOB(8), x FLOAT, y FLOAT, z FLOAT, width FLOAT, length FLOAT, height FLOAT,
    vx FLOAT, vy FLOAT, vz FLOAT, yaw FLOAT, confidence FLOAT);
CREATE TABLE scenario_tag (token BLOB(8) NOT NULL PRIMARY KEY, lidar_pc_token BLOB(8) NOT NULL, type TEXT,
    agent_track_token BLOB(8));
CREATE TABLE traffic_light_status (token BLOB(8) NOT NULL PRIMARY KEY, lidar_pc_token BLOB(8) NOT NULL,
    lane_connector_id INTEGER, status VARCHAR(8));
CREATE INDEX _lidar_box_lidar_pc_token ON lidar_box (lidar_pc_token);
CREATE INDEX _lidar_box_track_token ON lidar_box (track_token);
"""
