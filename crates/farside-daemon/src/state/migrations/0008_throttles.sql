-- Throttles are texts as people write them (4MB/s,08:00-18:00=1MB/s,zone=Europe/Berlin); absent: unlimited.
-- A mirror's window in bytes; absent: automatic. Its paths as a peer's are: LOCAL=HOST:PORT or HOST:PORT, separated by spaces.
ALTER TABLE relationships ADD COLUMN throttle TEXT;
ALTER TABLE relationships ADD COLUMN window INTEGER CHECK (window > 0);
ALTER TABLE relationships ADD COLUMN low_priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE relationships ADD COLUMN paths TEXT NOT NULL DEFAULT '';
ALTER TABLE peers ADD COLUMN throttle_in TEXT;
ALTER TABLE peers ADD COLUMN throttle_out TEXT;
-- Settings of the site that are changed while it runs.
CREATE TABLE settings (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);
