-- What a mirror remembers of its earlier directions (farside-mirror, past.rs). What was before this row knew it is not known.
ALTER TABLE relationships ADD COLUMN past BLOB;
