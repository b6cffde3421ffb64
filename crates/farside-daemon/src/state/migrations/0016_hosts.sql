-- Hosts that may open volumes over the network. A certificate is known by its fingerprint (SHA-256), so that one that was taken
-- back stays out whatever name it bears. Null: certificates come from an authority of the administrator's, and the name in
-- them counts.
CREATE TABLE hosts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    fingerprint BLOB UNIQUE,
    added_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;

-- A right belongs to a volume; the name is what that was called when the right was given.
CREATE TABLE host_rights (
    host INTEGER NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    volume_id BLOB NOT NULL,
    volume TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    PRIMARY KEY (host, volume_id)
) STRICT;
