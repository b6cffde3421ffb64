-- What a mirror remembers of its earlier directions (farside-mirror, past.rs). What was before this row knew it is not known.
ALTER TABLE relationships ADD COLUMN past BYTEA;
-- The group that a volume here is in at the site that has taken it over, and how many mirrors are in it.
ALTER TABLE source_relationships ADD COLUMN overtaken_group TEXT;
ALTER TABLE source_relationships ADD COLUMN overtaken_group_size BIGINT;
