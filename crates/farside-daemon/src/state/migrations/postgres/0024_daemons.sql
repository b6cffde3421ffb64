-- Where else a peer is reached: at the other daemons of its site. Addresses, with spaces between them.
ALTER TABLE peers ADD COLUMN other_addresses TEXT COLLATE "C" NOT NULL DEFAULT '';

-- From here on PostgreSQL's alone: several daemons are one site, and one of them leads.

-- The lease: who leads until when, by the clock of this server. The number rises with each that begins to lead.
ALTER TABLE owner ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE owner ADD COLUMN daemon TEXT COLLATE "C";
ALTER TABLE owner ADD COLUMN ends_at TIMESTAMPTZ;
-- What the other daemons say to the leading one to be believed; drawn anew by each.
ALTER TABLE owner ADD COLUMN pass TEXT COLLATE "C";
-- What all daemons of the site have in common.
ALTER TABLE owner ADD COLUMN site_id TEXT COLLATE "C";
ALTER TABLE owner ADD COLUMN site_name TEXT COLLATE "C";

CREATE TABLE daemons (
    id              TEXT COLLATE "C" PRIMARY KEY,
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    -- Where it serves the API over HTTPS, and which certificate it shows there.
    api_address     TEXT COLLATE "C",
    api_fingerprint TEXT COLLATE "C",
    peer_address    TEXT COLLATE "C",
    version         TEXT COLLATE "C" NOT NULL,
    joined_at       TIMESTAMPTZ NOT NULL,
    seen_at         TIMESTAMPTZ,
    -- The leading daemon has seen it: from then on that stops in time when it cannot renew its lease, and this one may follow.
    is_known        BOOLEAN NOT NULL,
    is_draining     BOOLEAN NOT NULL DEFAULT false,
    is_stopped      BOOLEAN NOT NULL DEFAULT false
);

-- Open invitations: the site's key, sealed with the code that somebody was given.
CREATE TABLE daemon_invitations (
    id         TEXT COLLATE "C" PRIMARY KEY,
    sealed     BYTEA NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

-- Clients of clusters that daemons of this site have had, by the number of the lease: who leads later puts them on the blocklist first.
CREATE TABLE cluster_clients (
    cluster TEXT COLLATE "C" NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    number  BIGINT NOT NULL,
    PRIMARY KEY (cluster, address)
);
