-- A state database as the daemon of schema 1 wrote it: `sqlite3 farside.db .dump`. Never edited.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations VALUES(1,'first','2026-11-22 00:15:29',1,X'ebd9ae0486b8d5574ff9e7a420fd31552eda2dfd20e39ed986354c734d96f6aee462fb72079bf638030964b7bc170fce',3875426);
CREATE TABLE pools (
    name     TEXT PRIMARY KEY NOT NULL,
    path     TEXT NOT NULL UNIQUE,
    added_at INTEGER NOT NULL
) STRICT;
INSERT INTO pools VALUES('vault','/srv/vault.pool',1795306531272667479);
CREATE TABLE peers (
    id       BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 32),
    name     TEXT NOT NULL UNIQUE,
    address  TEXT,
    added_at INTEGER NOT NULL
) STRICT;
INSERT INTO peers VALUES(X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','north','north.example:7440',1795306531307404785);
CREATE TABLE rights (
    peer    BLOB NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
    volume  TEXT NOT NULL,
    reverse INTEGER NOT NULL,
    PRIMARY KEY (peer, volume)
) STRICT;
INSERT INTO rights VALUES(X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','vault/mail',0);
INSERT INTO rights VALUES(X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','vault/later',1);
CREATE TABLE relationships (
    id                BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    peer              BLOB NOT NULL CHECK (length(peer) = 32),
    source            TEXT NOT NULL,
    pool              TEXT NOT NULL,
    volume            TEXT NOT NULL,
    every_nanoseconds INTEGER,
    quiesced          INTEGER NOT NULL,
    UNIQUE (pool, volume)
) STRICT;
INSERT INTO relationships VALUES(X'24c771e171fc4d23a4ce287c5bef7467',X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','tank/mail','vault','mail',90000000000,0);
INSERT INTO relationships VALUES(X'bf7dc87b79fd42b4adb6d587e992aa2a',X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','tank/web','vault','web',NULL,1);
CREATE TABLE source_relationships (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    peer        BLOB NOT NULL CHECK (length(peer) = 32),
    source      TEXT NOT NULL,
    destination TEXT NOT NULL,
    base        BLOB,
    since       INTEGER
) STRICT;
INSERT INTO source_relationships VALUES(X'7d0c6ec2b1f64f3e9b6a3f0d0d8c5b11',X'2c674cf7dcb62abb488f00aa335268612e9087105306b2c94eea44a9a25a1274','vault/back','tank/back',X'084bf0a4b86847c5963595ee4d9f9ccd',1795306531665742302);
CREATE TABLE transfers (
    sequence     INTEGER PRIMARY KEY AUTOINCREMENT,
    relationship BLOB NOT NULL,
    volume       TEXT NOT NULL,
    ended_at     INTEGER NOT NULL,
    -- JSON, as `mirror history --json` shows it.
    record       TEXT NOT NULL
) STRICT;
INSERT INTO transfers VALUES(1,X'24c771e171fc4d23a4ce287c5bef7467','vault/mail',1795306531426427663,'{"id":"d9bdd2ce-20fb-45dd-b5e6-44ad36191e27","kind":"initialize","result":"ok","reason":null,"started_at":"2026-11-22T00:15:31.403553718Z","ended_at":"2026-11-22T00:15:31.426427663Z","duration_seconds":0.02287392,"base":null,"incremental":"mirror-24c771e1-44ad36191e27","content_root":"86f7416b6fd3c1a93e58115ba87fad05","resumed":false,"snapshots":1,"changed_bytes":0,"deallocated_bytes":0,"source_read_bytes":0,"base_read_bytes":0,"referenced_bytes":null,"delta_bytes":0,"literal_bytes":0,"wire_bytes_sent":1141,"wire_bytes_received":1090,"scan_seconds":6.543e-6}');
INSERT INTO transfers VALUES(2,X'24c771e171fc4d23a4ce287c5bef7467','vault/mail',1795306531666493377,'{"id":"084bf0a4-b868-47c5-9635-95ee4d9f9ccd","kind":"update","result":"ok","reason":null,"started_at":"2026-11-22T00:15:31.661784878Z","ended_at":"2026-11-22T00:15:31.666493377Z","duration_seconds":0.004708434,"base":"mirror-24c771e1-44ad36191e27","incremental":"mirror-24c771e1-95ee4d9f9ccd","content_root":"86f7416b6fd3c1a93e58115ba87fad05","resumed":false,"snapshots":1,"changed_bytes":0,"deallocated_bytes":0,"source_read_bytes":0,"base_read_bytes":0,"referenced_bytes":null,"delta_bytes":0,"literal_bytes":0,"wire_bytes_sent":259,"wire_bytes_received":220,"scan_seconds":0.0}');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('transfers',2);
CREATE INDEX transfers_by_relationship ON transfers (relationship, sequence);
CREATE INDEX transfers_by_volume ON transfers (volume, sequence);
COMMIT;
