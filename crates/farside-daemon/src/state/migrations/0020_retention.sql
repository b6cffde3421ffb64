-- Which of the points that a replica was brought to stay (`last=10,hourly=24`); null is none.
ALTER TABLE relationships ADD COLUMN retention TEXT;
-- The group of mirrors that are broken off together.
ALTER TABLE relationships ADD COLUMN mirror_group TEXT;
-- The moment for which each point that retention keeps counts, and when it was noted here; nanoseconds since 1970. What is kept
-- is in the pools; a point without a row counts for the moment of its data.
CREATE TABLE kept_points (
    relationship BLOB NOT NULL,
    snapshot BLOB NOT NULL,
    at INTEGER NOT NULL,
    noted_at INTEGER NOT NULL,
    PRIMARY KEY (relationship, snapshot)
) STRICT;
-- Timetables of snapshots, as documents. One that is lost takes no more snapshots; what it has taken stays until a person deletes it.
CREATE TABLE snapshot_schedules (
    pool TEXT NOT NULL,
    volume TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (pool, volume)
) STRICT;
