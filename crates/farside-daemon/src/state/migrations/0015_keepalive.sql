-- How often a quiet session with the peer is asked for a sign of life, milliseconds; none: as often as by default.
ALTER TABLE peers ADD COLUMN keepalive INTEGER CHECK (keepalive > 0);
