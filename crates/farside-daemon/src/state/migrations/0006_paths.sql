-- How a peer's link is made: its paths (LOCAL=HOST:PORT or HOST:PORT, separated by spaces), how they are used, the DSCP of its
-- packets, and the contracted rate in bytes per second.
ALTER TABLE peers ADD COLUMN paths TEXT NOT NULL DEFAULT '';
ALTER TABLE peers ADD COLUMN paths_mode TEXT NOT NULL DEFAULT 'multiplex' CHECK (paths_mode IN ('multiplex', 'failover'));
ALTER TABLE peers ADD COLUMN dscp INTEGER CHECK (dscp BETWEEN 0 AND 63);
ALTER TABLE peers ADD COLUMN rate INTEGER CHECK (rate > 0);
